/// Reverse-mode differentiation on a tape of coarse operations.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

namespace troupe::engine {

/// A tensor that remembers its gradient; copies share both.
class Variable {
 public:
  Variable() = default;
  explicit Variable(Tensor value, bool requires_grad = false)
      : node_(std::make_shared<Node>(Node{std::move(value), {}, requires_grad})) {}

  const Tensor& value() const { return node_->value; }
  /// Undefined when nothing has flowed back.
  const Tensor& grad() const { return node_->grad; }
  bool requires_grad() const { return node_->requires_grad; }
  /// grad += gradient; takes the tensor over when it is the first.
  void AccumulateGrad(Device& device, Tensor gradient) const {
    if (node_->grad.defined()) {
      device.AddScaled(gradient, 1.0f, node_->grad);
    } else {
      node_->grad = std::move(gradient);
    }
  }

 private:
  struct Node {
    Tensor value;
    Tensor grad;
    bool requires_grad;
  };
  std::shared_ptr<Node> node_;
};

/// Collects the backward step of every operation and runs them in reverse order.
///
/// Lifetime a step keeps what it saved until it has run; Backward leaves the tape empty
/// Threads  one caller at a time
class Tape {
 public:
  using BackwardStep = std::function<absl::Status()>;

  Tape(Device& device, bool recording) : device_(&device), recording_(recording) {}

  Device& device() const { return *device_; }
  /// False in evaluation: nothing is saved.
  bool recording() const { return recording_; }
  void Record(BackwardStep step) {
    if (recording_) steps_.push_back(std::move(step));
  }
  /// Errors  of the first step that fails (a collective); the rest are dropped
  absl::Status Backward() {
    while (!steps_.empty()) {
      const BackwardStep step = std::move(steps_.back());
      steps_.pop_back();
      if (absl::Status status = step(); !status.ok()) {
        steps_.clear();
        return status;
      }
    }
    return absl::OkStatus();
  }

 private:
  Device* device_;
  bool recording_;
  std::vector<BackwardStep> steps_;
};

}  // namespace troupe::engine
