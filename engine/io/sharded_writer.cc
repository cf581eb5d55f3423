#include "engine/io/sharded_writer.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "engine/io/atomic_directory.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

using Entry = SafetensorsWriter::Entry;

uint64_t BytesOf(const Entry& entry) { return static_cast<uint64_t>(NumElements(entry.shape)) * SizeOf(entry.dtype); }

/// Cuts before the tensor that would make a shard too large.
std::vector<std::vector<Entry>> Cut(std::vector<Entry> entries, uint64_t max_bytes) {
  std::vector<std::vector<Entry>> shards(1);
  uint64_t bytes = 0;
  for (Entry& entry : entries) {
    if (!shards.back().empty() && bytes + BytesOf(entry) > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += BytesOf(entry);
    shards.back().push_back(std::move(entry));
  }
  return shards;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedWriter>> ShardedWriter::Create(const Options& options, std::vector<Entry> entries) {
  std::unique_ptr<ShardedWriter> writer(new ShardedWriter);
  std::vector<std::vector<Entry>> shards = Cut(std::move(entries), options.max_shard_bytes);
  const size_t count = shards.size();
  nlohmann::ordered_json index;
  uint64_t total = 0;
  nlohmann::json weight_map;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = count == 1 ? options.stem + ".safetensors"
                                        : absl::StrFormat("%s-%05d-of-%05d.safetensors", options.stem, i + 1, count);
    for (const Entry& entry : shards[i]) {
      writer->shard_of_[entry.name] = i;
      weight_map[entry.name] = name;
      total += BytesOf(entry);
    }
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> shard,
                            SafetensorsWriter::Create(options.dir + "/" + name, std::move(shards[i])));
    writer->shards_.push_back(std::move(shard));
  }
  if (count > 1) {
    index["metadata"]["total_size"] = total;
    index["weight_map"] = std::move(weight_map);
    writer->index_path_ = options.dir + "/" + options.stem + ".safetensors.index.json";
    writer->index_ = index.dump(2) + "\n";
  }
  return writer;
}

absl::Status ShardedWriter::WriteRange(const std::string& name, int64_t begin, absl::Span<const float> values) {
  const auto found = shard_of_.find(name);
  if (found == shard_of_.end()) return absl::InvalidArgumentError(absl::StrCat("no shard has a place for tensor ", name));
  return shards_[found->second]->WriteRange(name, begin, values);
}

absl::Status ShardedWriter::Finish() {
  for (const std::unique_ptr<SafetensorsWriter>& shard : shards_) TROUPE_RETURN_IF_ERROR(shard->Finish());
  return index_path_.empty() ? absl::OkStatus() : WriteFile(index_path_, index_);
}

}  // namespace troupe::engine
