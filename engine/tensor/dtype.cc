#include "engine/tensor/dtype.h"

namespace troupe::engine {

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
  }
  return "?";
}

}  // namespace troupe::engine
