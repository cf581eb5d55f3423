/// One collective operation under way: its messages carry what it is, and any error revokes everybody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/collective/collective.h"
#include "runtime/msg/buffer.h"

namespace troupe::runtime::internal {

enum class OperationKind : uint8_t {
  kBroadcast = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4,
  kAllToAll = 5,
  kBarrier = 6,
  kLast = kBarrier,
};

const char* OperationKindName(OperationKind kind);

struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  bool ragged = false;  ///< members may differ in `bytes`
  uint64_t number = 0;
  uint64_t bytes = 0;

  /// `all_reduce #12 (dp, 4096 bytes)`.
  std::string Describe(absl::string_view group) const;
};

/// A message that is being made: its header is written, `bytes` are for the payload.
struct Piece {
  Buffer buffer;
  std::byte* bytes = nullptr;
};

/// What each algorithm needs: pieces that are checked on arrival.
class OperationRun {
 public:
  OperationRun(Collective* collective, OperationKind kind, uint64_t bytes, bool ragged = false);

  int index() const { return collective_->index_; }
  int size() const { return collective_->size(); }

  /// Room for `size` bytes of step `step`; 64-byte aligned.
  Piece Prepare(size_t size, int step = 0) const;
  /// 64-byte aligned memory for sums on the way, to be used again by later operations.
  Buffer Scratch(size_t size, std::byte** bytes) const;
  Piece PrepareCopy(const void* data, size_t size, int step = 0) const;
  absl::Status Send(int to, const Buffer& piece);

  /// The payload of the next piece of member `from`, 64-byte aligned, sharing its memory.
  absl::StatusOr<Buffer> Receive(int from, int step = 0);
  /// The same, of exactly `size` bytes.
  absl::StatusOr<Buffer> ReceiveExactly(int from, size_t size, int step = 0);
  /// An error when what member `from` sent has not the size that was expected.
  absl::Status CheckSize(int from, const Buffer& payload, size_t size);
  /// The whole piece, to be sent on.
  absl::StatusOr<Buffer> ReceivePiece(int from, int step = 0);
  static Buffer Payload(const Buffer& piece);

  /// For operations that some members may leave before all have come: when it is late, the first of `members` that is
  /// not known to have come is named, and nobody else.
  void Suspect(std::vector<int> members) { suspects_ = std::move(members); }

 private:
  struct Header;

  std::string Describe() const { return operation_.Describe(collective_->options_.name); }
  int RankOf(int index) const { return collective_->ranks_[static_cast<size_t>(index)]; }
  uint64_t data_tag() const { return 2 * collective_->options_.channel; }
  uint64_t note_tag() const { return 2 * collective_->options_.channel + 1; }

  Header MakeHeader(int step) const;
  absl::StatusOr<Buffer> Wait(int from);
  void Announce();
  void ReadNotes();
  absl::Status Late(int from);
  absl::Status Fail(absl::StatusCode code, const std::string& what);
  absl::Status Broken(const absl::Status& status, int peer);

  Collective* collective_;
  Operation operation_;
  absl::Time start_;
  bool announced_ = false;
  std::vector<bool> arrived_;  // members known to be in this operation
  std::vector<int> suspects_;  // who may be late, in order; empty: all
};

}  // namespace troupe::runtime::internal
