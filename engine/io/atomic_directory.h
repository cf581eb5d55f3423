/// A directory that appears whole or not at all.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace troupe::engine {

/// Files are written to a hidden directory beside the target, synced, and renamed; an older target is replaced, whatever is in it.
///
/// Lifetime without Commit the hidden directory is removed
class AtomicDirectory {
 public:
  /// Errors  UNAVAILABLE; INVALID_ARGUMENT for a target that is a file
  static absl::StatusOr<AtomicDirectory> Create(const std::string& target);
  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  ~AtomicDirectory();

  /// Where to write until Commit.
  const std::string& path() const { return path_; }
  absl::Status Commit();

 private:
  AtomicDirectory(std::string target, std::string path) : target_(std::move(target)), path_(std::move(path)) {}
  std::string target_, path_;
};

/// Writes a whole file and syncs it.
///
/// Errors  RESOURCE_EXHAUSTED (the disk is full) and UNAVAILABLE, naming the file and the size that was needed
absl::Status WriteFile(const std::string& path, const std::string& text);
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace troupe::engine
