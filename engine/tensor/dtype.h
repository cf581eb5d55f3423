/// Element types of tensors and of weight files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::engine {

/// kF16 occurs in files only; it is converted when read.
enum class DType : uint8_t { kF32, kBF16, kF16 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
const char* Name(DType dtype);  ///< "float32", "bfloat16", "float16"

}  // namespace troupe::engine
