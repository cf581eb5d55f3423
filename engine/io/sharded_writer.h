/// Streams the tensors of a model into one safetensors file, or into shards with an index when one would be too large.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/io/safetensors.h"

namespace troupe::engine {

/// STEM.safetensors; or STEM-00001-of-0000N.safetensors, each of at most `max_shard_bytes` (one tensor may be larger), and
/// STEM.safetensors.index.json.
///
/// Source  the layout of transformers' save_pretrained
class ShardedWriter {
 public:
  struct Options {
    std::string dir;             ///< is there
    std::string stem = "model";
    uint64_t max_shard_bytes = 5'000'000'000;
  };
  /// Errors  as of SafetensorsWriter; tensors go into shards in the order of `entries`
  static absl::StatusOr<std::unique_ptr<ShardedWriter>> Create(const Options& options, std::vector<SafetensorsWriter::Entry> entries);

  absl::Status Write(const std::string& name, absl::Span<const float> values) { return WriteRange(name, 0, values); }
  absl::Status WriteRange(const std::string& name, int64_t begin, absl::Span<const float> values);
  /// Writes the index and syncs.  Errors  FAILED_PRECONDITION naming a tensor that was not written whole
  absl::Status Finish();

 private:
  ShardedWriter() = default;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, size_t> shard_of_;
  std::string index_path_, index_;  ///< empty when there is one shard
};

}  // namespace troupe::engine
