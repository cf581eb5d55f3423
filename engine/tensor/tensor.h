/// Dense arrays of numbers: contiguous, 64-byte aligned, f32 or bf16, with shared ownership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/tensor/dtype.h"
#include "runtime/base/check.h"

namespace troupe::engine {

using Shape = std::vector<int64_t>;

int64_t NumElements(const Shape& shape);
std::string ToString(const Shape& shape);

/// A view of shared memory; copying a Tensor copies no numbers.
///
/// Memory comes from a pool and goes back to it, so a step in steady state allocates nothing anew.
/// Threads  distinct tensors may be used from distinct threads; the pool is thread-safe.
class Tensor {
 public:
  Tensor() = default;

  /// Uninitialised memory.
  static Tensor Empty(Shape shape, DType dtype = DType::kF32);
  static Tensor Zeros(Shape shape, DType dtype = DType::kF32);
  static Tensor FromVector(const std::vector<float>& values, Shape shape);

  /// The same memory from element `offset` on, seen with another shape.
  Tensor View(int64_t offset, Shape shape) const;
  Tensor Reshape(Shape shape) const { return View(0, std::move(shape)); }
  /// Rows [begin, end) of the first dimension.
  Tensor Rows(int64_t begin, int64_t end) const;

  const Shape& shape() const { return shape_; }
  int64_t dim(size_t i) const { return shape_[i]; }
  int64_t size() const { return size_; }
  /// A tensor of two or more dimensions as a matrix: the last dimension is the columns.
  int64_t cols() const { return shape_.empty() ? 1 : shape_.back(); }
  int64_t rows() const { return cols() == 0 ? 0 : size_ / cols(); }
  DType dtype() const { return dtype_; }
  bool defined() const { return storage_ != nullptr; }
  size_t num_bytes() const { return static_cast<size_t>(size_) * SizeOf(dtype_); }

  float* f32() const {
    TROUPE_CHECK(dtype_ == DType::kF32) << "tensor of " << Name(dtype_) << " read as float32";
    return reinterpret_cast<float*>(bytes());
  }
  uint16_t* bf16() const {
    TROUPE_CHECK(dtype_ == DType::kBF16) << "tensor of " << Name(dtype_) << " read as bfloat16";
    return reinterpret_cast<uint16_t*>(bytes());
  }
  std::byte* bytes() const { return storage_.get() + static_cast<size_t>(offset_) * SizeOf(dtype_); }

  void Fill(float value) const;
  std::vector<float> ToVector() const;

 private:
  std::shared_ptr<std::byte> storage_;
  int64_t offset_ = 0;
  int64_t size_ = 0;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace troupe::engine
