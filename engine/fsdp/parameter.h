/// Weights as the operations see them: views into the gathered buffer of a block.
#pragma once

#include <cstdint>
#include <string>

#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

namespace troupe::engine {

/// What a parameter is, wherever its numbers are.
struct ParameterSpec {
  std::string name;  ///< as in the weight files
  Shape shape;
  bool trainable = false;
  bool decay = true;  ///< false for norms and biases
};

/// One weight of a model; its numbers are there while its block is gathered.
class Parameter {
 public:
  explicit Parameter(ParameterSpec spec) : spec_(std::move(spec)) {}

  const ParameterSpec& spec() const { return spec_; }
  bool trainable() const { return spec_.trainable; }
  /// Shapes  spec().shape, f32
  const Tensor& value() const {
    TROUPE_CHECK(value_.defined()) << spec_.name << " is used while its block is not gathered";
    return value_;
  }
  /// A matrix as [in, out], made at first use and kept while the weights stay the same.
  const Tensor& transposed(Device& device) {
    if (!transposed_.defined()) {
      transposed_ = Tensor::Empty({spec_.shape[1], spec_.shape[0]});
      device.Transpose(value(), transposed_);
    }
    return transposed_;
  }
  /// Gradients are added here; undefined for a frozen parameter and outside of training.
  const Tensor& grad() const { return grad_; }

 private:
  friend class ParameterBlock;
  ParameterSpec spec_;
  Tensor value_, grad_, transposed_;
};

}  // namespace troupe::engine
