/// Random numbers from a counter: what is drawn depends on the key and the place alone, never on who drew before.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace troupe::engine {

/// What a stream is for; part of its key, so that no two uses share numbers.
enum class RandomPurpose : uint32_t { kInit = 1, kLoraInit = 2, kLoraDropout = 3, kShuffle = 4, kSampling = 5, kSplit = 6 };

/// Philox4x32-10.
///
///   block(i) = philox(key = (seed, purpose), counter = (i, stream))
///
/// Source   Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"
/// Threads  thread-safe: it has no state.
class Philox {
 public:
  Philox(uint64_t seed, RandomPurpose purpose, uint64_t stream = 0)
      : key_{static_cast<uint32_t>(seed) ^ static_cast<uint32_t>(purpose) * 0x9E3779B9u, static_cast<uint32_t>(seed >> 32)},
        stream_(stream) {}

  std::array<uint32_t, 4> Block(uint64_t index) const {
    std::array<uint32_t, 4> c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                 static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)};
    uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
      c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }

  /// The element `index` of the stream, uniform in [0, 1).
  float Uniform(uint64_t index) const {
    return static_cast<float>(Block(index / 4)[index % 4] >> 8) * (1.0f / 16777216.0f);
  }

  /// The element `index` of the stream, standard normal (Box-Muller on doubles).
  float Normal(uint64_t index) const {
    const std::array<uint32_t, 4> bits = Block(index / 2);
    const size_t pair = (index % 2) * 2;
    const double u = (static_cast<double>(bits[pair]) + 1.0) / 4294967296.0;
    const double v = static_cast<double>(bits[pair + 1]) / 4294967296.0;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
  }

 private:
  std::array<uint32_t, 2> key_;
  uint64_t stream_;
};

}  // namespace troupe::engine
