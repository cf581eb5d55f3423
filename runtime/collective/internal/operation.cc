#include "runtime/collective/internal/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/collective/internal/piece_pool.h"

namespace troupe::runtime::internal {

namespace {

constexpr uint32_t kMagic = 0x6c6f6374;  // "tcol"
constexpr size_t kHeaderBytes = 64;      // keeps the payload aligned
/// Marks errors that name an operation already.
constexpr const char* kNamesOperation = "troupe/collective";

bool IsAligned(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % 64 == 0; }

}  // namespace

/// As it lies in memory; members are of one build on little-endian machines.
struct OperationRun::Header {
  uint32_t magic = kMagic;
  OperationKind kind = OperationKind::kBarrier;
  uint8_t ragged = 0;
  uint16_t step = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;

  static bool Read(const Buffer& piece, Header* header) {
    if (piece.size() < kHeaderBytes) return false;
    std::memcpy(header, piece.data(), sizeof(*header));
    return header->magic == kMagic && header->kind >= OperationKind::kBroadcast && header->kind <= OperationKind::kLast;
  }
  Operation operation() const { return {kind, ragged != 0, number, bytes}; }
};

const char* OperationKindName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kReduceScatter:
      return "reduce_scatter";
    case OperationKind::kAllReduce:
      return "all_reduce";
    case OperationKind::kAllToAll:
      return "all_to_all";
    case OperationKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string Operation::Describe(absl::string_view group) const {
  if (kind == OperationKind::kBarrier) return absl::StrCat("barrier #", number, " (", group, ")");
  return absl::StrCat(OperationKindName(kind), " #", number, " (", group, ", ", bytes,
                      ragged ? " bytes here)" : " bytes)");
}

OperationRun::OperationRun(Collective* collective, OperationKind kind, uint64_t bytes, bool ragged)
    : collective_(collective),
      operation_{kind, ragged, collective->next_operation_++, bytes},
      start_(absl::Now()),
      arrived_(static_cast<size_t>(collective->size()), false) {
  // Notes of members who waited for us would pile up if nobody read them.
  if (operation_.number % 64 == 63) ReadNotes();
}

OperationRun::Header OperationRun::MakeHeader(int step) const {
  Header header;
  header.kind = operation_.kind;
  header.ragged = operation_.ragged ? 1 : 0;
  header.step = static_cast<uint16_t>(step);
  header.number = operation_.number;
  header.bytes = operation_.bytes;
  return header;
}

Piece OperationRun::Prepare(size_t size, int step) const {
  static_assert(sizeof(Header) <= kHeaderBytes);
  Piece piece;
  piece.buffer = collective_->pool_->Allocate(kHeaderBytes + size, &piece.bytes);
  const Header header = MakeHeader(step);
  std::memset(piece.bytes, 0, kHeaderBytes);
  std::memcpy(piece.bytes, &header, sizeof(header));
  piece.bytes += kHeaderBytes;
  return piece;
}

Buffer OperationRun::Scratch(size_t size, std::byte** bytes) const { return collective_->pool_->Allocate(size, bytes); }

Piece OperationRun::PrepareCopy(const void* data, size_t size, int step) const {
  Piece piece = Prepare(size, step);
  if (size > 0) std::memcpy(piece.bytes, data, size);
  return piece;
}

absl::Status OperationRun::Send(int to, const Buffer& piece) {
  const absl::Status status = collective_->transport_->Send(RankOf(to), data_tag(), piece);
  return status.ok() ? status : Broken(status, to);
}

absl::StatusOr<Buffer> OperationRun::ReceivePiece(int from, int step) {
  absl::StatusOr<Buffer> piece = Wait(from);
  if (!piece.ok()) return piece;
  Header header;
  if (!Header::Read(*piece, &header)) {
    return Fail(absl::StatusCode::kDataLoss, absl::StrCat("rank ", RankOf(from), " sent ", piece->size(),
                                                          " bytes that are no piece of a collective"));
  }
  const Operation theirs = header.operation();
  const bool same = theirs.kind == operation_.kind && theirs.number == operation_.number &&
                    theirs.ragged == operation_.ragged && (theirs.ragged || theirs.bytes == operation_.bytes);
  if (!same) {
    return Fail(absl::StatusCode::kFailedPrecondition, absl::StrCat("rank ", RankOf(from), " is out of step: it is in ",
                                                                    theirs.Describe(collective_->options_.name)));
  }
  if (header.step != static_cast<uint16_t>(step)) {
    return Fail(absl::StatusCode::kDataLoss,
                absl::StrCat("rank ", RankOf(from), " sent step ", header.step, " instead of ", step));
  }
  arrived_[static_cast<size_t>(from)] = true;
  return piece;
}

Buffer OperationRun::Payload(const Buffer& piece) {
  const std::byte* data = piece.data() + kHeaderBytes;
  const size_t size = piece.size() - kHeaderBytes;
  if (!IsAligned(data)) return Buffer::Copy(data, size);
  return Buffer::Wrap(std::make_shared<Buffer>(piece), data, size);
}

absl::StatusOr<Buffer> OperationRun::Receive(int from, int step) {
  TROUPE_ASSIGN_OR_RETURN(const Buffer piece, ReceivePiece(from, step));
  return Payload(piece);
}

absl::StatusOr<Buffer> OperationRun::ReceiveExactly(int from, size_t size, int step) {
  TROUPE_ASSIGN_OR_RETURN(Buffer payload, Receive(from, step));
  TROUPE_RETURN_IF_ERROR(CheckSize(from, payload, size));
  return payload;
}

absl::Status OperationRun::CheckSize(int from, const Buffer& payload, size_t size) {
  if (payload.size() == size) return absl::OkStatus();
  return Fail(absl::StatusCode::kFailedPrecondition,
              absl::StrCat("rank ", RankOf(from), " sent ", payload.size(), " bytes where ", size, " were expected"));
}

absl::StatusOr<Buffer> OperationRun::Wait(int from) {
  const absl::Duration timeout = collective_->options_.timeout;
  const absl::Time deadline = start_ + timeout;
  PointToPoint& transport = *collective_->transport_;
  // A member that waits in vain may be waiting for one that waits itself. So whoever has waited for a while tells the
  // others that it is here, and who runs into the deadline can name the member that is not.
  const absl::Time patience = std::min(deadline, absl::Now() + std::min(timeout / 4, absl::Seconds(1)));
  absl::StatusOr<Buffer> piece = transport.Receive(RankOf(from), data_tag(), announced_ ? deadline : patience);
  if (!piece.ok() && absl::IsDeadlineExceeded(piece.status()) && transport.revoked().ok() && !announced_) {
    Announce();
    piece = transport.Receive(RankOf(from), data_tag(), deadline);
  }
  if (piece.ok()) return piece;
  if (absl::IsDeadlineExceeded(piece.status()) && transport.revoked().ok()) return Late(from);
  return Broken(piece.status(), from);
}

void OperationRun::Announce() {
  announced_ = true;
  const Piece note = Prepare(0);
  for (int member = 0; member < size(); ++member) {
    // A member that cannot be reached shows when its data is waited for.
    if (member != index()) collective_->transport_->Send(RankOf(member), note_tag(), note.buffer).IgnoreError();
  }
  ReadNotes();
}

void OperationRun::ReadNotes() {
  for (int member = 0; member < size(); ++member) {
    if (member == index()) continue;
    for (;;) {
      const absl::StatusOr<Buffer> note =
          collective_->transport_->Receive(RankOf(member), note_tag(), absl::InfinitePast());
      if (!note.ok()) break;
      Header header;
      if (Header::Read(*note, &header) && header.number >= operation_.number) {
        arrived_[static_cast<size_t>(member)] = true;
      }
    }
  }
}

absl::Status OperationRun::Late(int from) {
  ReadNotes();
  const std::string timeout = absl::FormatDuration(collective_->options_.timeout);
  std::vector<int> absent;
  for (int i = 0; i < (suspects_.empty() ? size() : static_cast<int>(suspects_.size())); ++i) {
    const int member = suspects_.empty() ? i : suspects_[static_cast<size_t>(i)];
    if (member == index() || arrived_[static_cast<size_t>(member)]) continue;
    // Its data may lie here unread while another was waited for.
    if (collective_->transport_->Receive(RankOf(member), data_tag(), absl::InfinitePast()).ok()) continue;
    absent.push_back(RankOf(member));
    if (!suspects_.empty()) break;
  }
  if (absent.empty()) {
    return Fail(absl::StatusCode::kDeadlineExceeded,
                absl::StrCat("rank ", RankOf(from), " arrived, but did not finish within ", timeout));
  }
  std::sort(absent.begin(), absent.end());
  return Fail(absl::StatusCode::kDeadlineExceeded,
              absl::StrCat(absent.size() == 1 ? "rank " : "ranks ", absl::StrJoin(absent, ", "),
                           " did not arrive within ", timeout));
}

absl::Status OperationRun::Fail(absl::StatusCode code, const std::string& what) {
  absl::Status status(code, absl::StrCat(Describe(), ": ", what));
  status.SetPayload(kNamesOperation, absl::Cord());
  collective_->transport_->Revoke(status);
  // Another member may have been first; its reason is the cause of ours.
  const absl::Status first = collective_->transport_->revoked();
  return first.ok() ? status : first;
}

absl::Status OperationRun::Broken(const absl::Status& status, int peer) {
  const absl::Status revoked = collective_->transport_->revoked();
  if (!revoked.ok()) {
    if (revoked.GetPayload(kNamesOperation).has_value()) return revoked;
    return Annotate(revoked, Describe());
  }
  return Fail(status.code(), absl::StrCat("rank ", RankOf(peer), ": ", status.message()));
}

}  // namespace troupe::runtime::internal
