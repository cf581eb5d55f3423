#include "engine/tensor/tensor.h"

#include <algorithm>
#include <cstring>

#include "engine/tensor/memory_pool.h"

namespace troupe::engine {

int64_t NumElements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Tensor Tensor::Empty(Shape shape, DType dtype) {
  Tensor tensor;
  tensor.size_ = NumElements(shape);
  tensor.shape_ = std::move(shape);
  tensor.dtype_ = dtype;
  tensor.storage_ = MemoryPool::Allocate(static_cast<size_t>(tensor.size_) * SizeOf(dtype));
  return tensor;
}

Tensor Tensor::Zeros(Shape shape, DType dtype) {
  Tensor tensor = Empty(std::move(shape), dtype);
  std::memset(tensor.bytes(), 0, tensor.num_bytes());
  return tensor;
}

Tensor Tensor::FromVector(const std::vector<float>& values, Shape shape) {
  Tensor tensor = Empty(std::move(shape));
  TROUPE_CHECK_EQ(tensor.size(), static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), tensor.f32());
  return tensor;
}

Tensor Tensor::View(int64_t offset, Shape shape) const {
  Tensor view = *this;
  view.offset_ += offset;
  view.size_ = NumElements(shape);
  TROUPE_CHECK_LE(offset + view.size_, size_);
  view.shape_ = std::move(shape);
  return view;
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  Shape shape = shape_;
  const int64_t stride = shape[0] == 0 ? 0 : size_ / shape[0];
  shape[0] = end - begin;
  return View(begin * stride, std::move(shape));
}

void Tensor::Fill(float value) const { std::fill_n(f32(), size_, value); }

std::vector<float> Tensor::ToVector() const { return {f32(), f32() + size_}; }

}  // namespace troupe::engine
