/// Reads and writes files of tensors in the safetensors format.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/tensor/tensor.h"

namespace troupe::engine {

/// A tensor inside a mapped file.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< as in the file: "F32", "BF16", "F16", or one that we do not read
  Shape shape;
  absl::Span<const std::byte> bytes;
};

/// A memory-mapped safetensors file.
///
/// Lifetime entries show the mapping: they live as long as this
/// Threads  thread-safe
class SafetensorsFile {
 public:
  /// Errors  NOT_FOUND; INVALID_ARGUMENT for a header that is cut off, not JSON, too large (100 MB) or names a tensor twice, and
  ///         for tensors that lie outside the file, overlap, leave bytes between them, or do not fill their shape: naming file
  ///         and tensor
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }

 private:
  SafetensorsFile() = default;
  std::string path_;
  void* mapping_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, TensorEntry> tensors_;
};

/// Elements [begin, begin + count) of a tensor as f32.
///
/// Errors  UNIMPLEMENTED naming a dtype other than F32, BF16 and F16
absl::Status ReadElements(const TensorEntry& tensor, int64_t begin, int64_t count, float* values);

/// Streams tensors into a file: the header first, then each tensor in the order of the header.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
  };
  /// Room for the whole file is asked of the file system at once.
  ///
  /// Errors  naming the file; RESOURCE_EXHAUSTED when the disk is full, with what was needed and what is free
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path, std::vector<Entry> entries);
  ~SafetensorsWriter();

  /// `values` are f32 and rounded to the entry's dtype; a name that the header does not have is an error.
  absl::Status Write(const std::string& name, absl::Span<const float> values) { return WriteRange(name, 0, values); }
  /// Elements [begin, begin + values.size()) of a tensor; each is written once.
  absl::Status WriteRange(const std::string& name, int64_t begin, absl::Span<const float> values);
  /// Syncs.  Errors  FAILED_PRECONDITION naming a tensor that was not written whole
  absl::Status Finish();

 private:
  SafetensorsWriter() = default;
  absl::Status WriteAt(const void* data, size_t size, uint64_t offset);
  struct Place {
    Entry entry;
    uint64_t offset = 0;
    int64_t written = 0;  ///< elements
  };
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::map<std::string, Place> places_;
};

}  // namespace troupe::engine
