/// What the CPU kernels share: versions for several instruction sets, exp, and sums in a fixed order.
#pragma once

#include <cstdint>
#include <cstring>

// One function, compiled for each instruction set and picked when the program starts. Sanitizers do not run before that.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define TROUPE_KERNEL
#else
#define TROUPE_KERNEL __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#endif
#define TROUPE_INLINE inline __attribute__((always_inline))

namespace troupe::engine::cpu {

/// Sixteen floats: one AVX-512 register, two of AVX2, four of SSE.
typedef float F16 __attribute__((vector_size(64), aligned(4), may_alias));

/// exp(x) within 2 ulp for x in [-87, 88]; below it is about 1e-38, never 0; NaN stays NaN.
///
/// Source  Cephes expf: x = n ln 2 + r, polynomial of degree 6 on |r| <= ln 2 / 2
TROUPE_INLINE float Exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, 4);
  bits = (bits << 23) + 0x3f800000u;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return p * scale;
}

/// The sum of sixteen lanes as a fixed tree.
template <typename T>
TROUPE_INLINE T SumLanes(const T (&lanes)[16]) {
  T s[8];
  for (int i = 0; i < 8; ++i) s[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
  return (s[0] + s[2]) + (s[1] + s[3]);
}

}  // namespace troupe::engine::cpu
