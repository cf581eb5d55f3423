#include "runtime/collective/collective.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/collective/internal/operation.h"
#include "runtime/collective/internal/piece_pool.h"
#include "runtime/collective/internal/tree_sum.h"
#include "runtime/mesh/dispatch.h"

namespace troupe::runtime {

using internal::OperationKind;
using internal::OperationRun;
using internal::Piece;

namespace {

/// Up to this many bytes an all-reduce takes one round: everybody gets everything and adds for itself.
constexpr size_t kOneRoundBytes = 16 << 10;
/// What a group keeps of memory for messages between operations.
constexpr size_t kPoolBytes = 64 << 20;
/// Steps of the all-gather that ends an all-reduce are counted from here.
constexpr int kGatherStep = 1000;

std::vector<int> Iota(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <typename T>
const T* As(const Buffer& buffer) {
  return reinterpret_cast<const T*>(buffer.data());
}

void CopyBytes(void* to, const void* from, size_t size) {
  if (size > 0 && to != from) std::memmove(to, from, size);
}

/// offsets[c] is where chunk c begins, offsets[n] the end.
std::vector<size_t> Offsets(absl::Span<const size_t> counts) {
  std::vector<size_t> offsets(counts.size() + 1, 0);
  for (size_t c = 0; c < counts.size(); ++c) offsets[c + 1] = offsets[c] + counts[c];
  return offsets;
}

std::vector<size_t> EvenCounts(size_t elements, int size) {
  std::vector<size_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(SplitRows(elements, size, r).size());
  return counts;
}

/// Sends one piece to all others and returns the payloads of all, the own one included; of sizes[r] bytes if given.
absl::StatusOr<std::vector<Buffer>> GatherAll(OperationRun& run, const Piece& piece, int step,
                                              absl::Span<const size_t> sizes) {
  for (int i = 1; i < run.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(run.Send((run.index() + i) % run.size(), piece.buffer));
  }
  std::vector<Buffer> payloads(static_cast<size_t>(run.size()));
  for (int i = 0; i < run.size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (i == run.index()) {
      payloads[at] = OperationRun::Payload(piece.buffer);
    } else {
      TROUPE_ASSIGN_OR_RETURN(payloads[at], run.Receive(i, step));
      if (!sizes.empty()) TROUPE_RETURN_IF_ERROR(run.CheckSize(i, payloads[at], sizes[at]));
    }
  }
  return payloads;
}

/// Every member sends chunk c to member c, which adds along the tree: for sizes that are no power of two.
template <typename T>
absl::Status DirectReduceScatter(OperationRun& run, const T* send, absl::Span<const size_t> counts, T* recv) {
  const std::vector<size_t> offsets = Offsets(counts);
  for (int i = 1; i < run.size(); ++i) {
    const int to = (run.index() + i) % run.size();
    const size_t chunk = static_cast<size_t>(to);
    TROUPE_RETURN_IF_ERROR(run.Send(to, run.PrepareCopy(send + offsets[chunk], counts[chunk] * sizeof(T)).buffer));
  }
  const size_t own = static_cast<size_t>(run.index());
  std::vector<Buffer> payloads(counts.size());
  std::vector<const T*> leaves(counts.size());
  for (size_t r = 0; r < counts.size(); ++r) {
    if (r == own) {
      leaves[r] = send + offsets[own];
    } else {
      TROUPE_ASSIGN_OR_RETURN(payloads[r], run.ReceiveExactly(static_cast<int>(r), counts[own] * sizeof(T)));
      leaves[r] = As<T>(payloads[r]);
    }
  }
  internal::TreeSumArrays<T>(leaves, counts[own], recv);
  return absl::OkStatus();
}

/// Recursive halving: at step s, partners at distance 2^s add their blocks of 2^s members and each keeps half of the
/// chunks, those whose bit s is its own. Neighbours come first, so the sums follow the tree ((0+1)+(2+3))+...
template <typename T>
absl::Status HalvingReduceScatter(OperationRun& run, const T* send, absl::Span<const size_t> counts, T* recv) {
  const size_t size = counts.size();
  const size_t own = static_cast<size_t>(run.index());
  const std::vector<size_t> offsets = Offsets(counts);
  std::vector<size_t> held(size);  // chunks of which a partial sum is here, in ascending order
  std::iota(held.begin(), held.end(), size_t{0});
  std::vector<const T*> partial(size);  // where, by chunk
  for (size_t c = 0; c < size; ++c) partial[c] = send + offsets[c];
  Buffer sums;

  for (int step = 0; (size_t{1} << step) < size; ++step) {
    const size_t distance = size_t{1} << step;
    const size_t partner = own ^ distance;
    std::vector<size_t> kept;
    std::vector<size_t> given;
    for (const size_t c : held) ((c & distance) == (own & distance) ? kept : given).push_back(c);

    size_t given_count = 0;
    for (const size_t c : given) given_count += counts[c];
    const Piece piece = run.Prepare(given_count * sizeof(T), step);
    std::byte* fill = piece.bytes;
    for (const size_t c : given) {
      CopyBytes(fill, partial[c], counts[c] * sizeof(T));
      fill += counts[c] * sizeof(T);
    }
    TROUPE_RETURN_IF_ERROR(run.Send(static_cast<int>(partner), piece.buffer));

    size_t kept_count = 0;
    for (const size_t c : kept) kept_count += counts[c];
    TROUPE_ASSIGN_OR_RETURN(const Buffer payload,
                            run.ReceiveExactly(static_cast<int>(partner), kept_count * sizeof(T), step));
    const bool last = kept.size() == 1;
    Buffer next;
    T* out = recv;
    if (!last) {
      std::byte* bytes = nullptr;
      next = run.Scratch(kept_count * sizeof(T), &bytes);
      out = reinterpret_cast<T*>(bytes);
    }
    const T* theirs = As<T>(payload);
    for (const size_t c : kept) {
      const T* left = partner < own ? theirs : partial[c];
      const T* right = partner < own ? partial[c] : theirs;
      internal::AddArrays(left, right, out, counts[c]);
      partial[c] = out;
      out += counts[c];
      theirs += counts[c];
    }
    sums = std::move(next);
    held = std::move(kept);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ReduceScatterChunks(OperationRun& run, const T* send, absl::Span<const size_t> counts, T* recv) {
  if (counts.size() == 1) {
    CopyBytes(recv, send, counts[0] * sizeof(T));
    return absl::OkStatus();
  }
  return std::has_single_bit(counts.size()) ? HalvingReduceScatter(run, send, counts, recv)
                                            : DirectReduceScatter(run, send, counts, recv);
}

template <typename T>
absl::Status AllReduceSpan(OperationRun& run, absl::Span<T> data) {
  if (run.size() == 1) return absl::OkStatus();
  const size_t bytes = data.size() * sizeof(T);
  if (bytes <= kOneRoundBytes) {
    const std::vector<size_t> sizes(static_cast<size_t>(run.size()), bytes);
    TROUPE_ASSIGN_OR_RETURN(const std::vector<Buffer> payloads,
                            GatherAll(run, run.PrepareCopy(data.data(), bytes), 0, sizes));
    std::vector<const T*> leaves;
    for (const Buffer& payload : payloads) leaves.push_back(As<T>(payload));
    internal::TreeSumArrays<T>(leaves, data.size(), data.data());
    return absl::OkStatus();
  }
  const std::vector<size_t> counts = EvenCounts(data.size(), run.size());
  const std::vector<size_t> offsets = Offsets(counts);
  const size_t own = static_cast<size_t>(run.index());
  const Piece piece = run.Prepare(counts[own] * sizeof(T), kGatherStep);
  T* chunk = reinterpret_cast<T*>(piece.bytes);
  TROUPE_RETURN_IF_ERROR(ReduceScatterChunks<T>(run, data.data(), counts, chunk));
  std::vector<size_t> sizes;
  for (const size_t count : counts) sizes.push_back(count * sizeof(T));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<Buffer> payloads, GatherAll(run, piece, kGatherStep, sizes));
  for (size_t c = 0; c < counts.size(); ++c) {
    CopyBytes(data.data() + offsets[c], payloads[c].data(), payloads[c].size());
  }
  return absl::OkStatus();
}

}  // namespace

Collective::Collective(PointToPoint* transport, std::vector<int> ranks, CollectiveOptions options)
    : transport_(transport),
      ranks_(std::move(ranks)),
      options_(std::move(options)),
      pool_(internal::PiecePool::Create(kPoolBytes)) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    TROUPE_CHECK(ranks_[i] >= 0 && ranks_[i] < transport_->size())
        << "member " << ranks_[i] << " of group " << options_.name << ", there are " << transport_->size() << " ranks";
    if (ranks_[i] != transport_->rank()) continue;
    TROUPE_CHECK_EQ(index_, -1) << "rank " << ranks_[i] << " is twice in group " << options_.name;
    index_ = static_cast<int>(i);
  }
  TROUPE_CHECK_GE(index_, 0) << "rank " << transport_->rank() << " is not in group " << options_.name;
}

Collective::Collective(PointToPoint* transport, CollectiveOptions options)
    : Collective(transport, Iota(transport->size()), std::move(options)) {}

namespace {

/// Binomial tree from `root`: the piece is sent on as it came, without a copy. Returns the payload.
absl::StatusOr<Buffer> BroadcastPiece(OperationRun& run, int root, const Piece& own) {
  const int size = run.size();
  const int place = (run.index() - root + size) % size;  // root is 0
  Buffer piece = own.buffer;
  int mask = 1;
  while (mask < size && (place & mask) == 0) mask <<= 1;
  if (place != 0) {
    // Whoever has passed the piece on is gone, so only those between the root and here can be late; the nearest first.
    std::vector<int> ancestors;
    for (int p = place; p != 0; p &= p - 1) ancestors.push_back(((p & (p - 1)) + root) % size);
    run.Suspect(std::move(ancestors));
    TROUPE_ASSIGN_OR_RETURN(piece, run.ReceivePiece((place - mask + root) % size));
  }
  for (mask >>= 1; mask > 0; mask >>= 1) {
    if (place + mask < size) TROUPE_RETURN_IF_ERROR(run.Send((place + mask + root) % size, piece));
  }
  return OperationRun::Payload(piece);
}

}  // namespace

absl::Status Collective::Broadcast(int root, absl::Span<std::byte> data) {
  TROUPE_CHECK(root >= 0 && root < size()) << "root " << root << " of " << size();
  OperationRun run(this, OperationKind::kBroadcast, data.size());
  if (size() == 1) return absl::OkStatus();
  Piece own;
  if (root == rank()) own = run.PrepareCopy(data.data(), data.size());
  TROUPE_ASSIGN_OR_RETURN(const Buffer payload, BroadcastPiece(run, root, own));
  if (root == rank()) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(run.CheckSize(root, payload, data.size()));
  CopyBytes(data.data(), payload.data(), payload.size());
  return absl::OkStatus();
}

absl::StatusOr<Buffer> Collective::Broadcast(int root, Buffer data) {
  TROUPE_CHECK(root >= 0 && root < size()) << "root " << root << " of " << size();
  OperationRun run(this, OperationKind::kBroadcast, root == rank() ? data.size() : 0, /*ragged=*/true);
  if (size() == 1) return data;
  Piece own;
  if (root == rank()) own = run.PrepareCopy(data.data(), data.size());
  return BroadcastPiece(run, root, own);
}

absl::Status Collective::AllGather(absl::Span<const std::byte> send, absl::Span<std::byte> recv) {
  TROUPE_CHECK_EQ(recv.size(), send.size() * ranks_.size());
  OperationRun run(this, OperationKind::kAllGather, send.size());
  const size_t n = send.size();
  if (size() > 1) {
    const Piece piece = run.PrepareCopy(send.data(), n);
    for (int i = 1; i < size(); ++i) TROUPE_RETURN_IF_ERROR(run.Send((rank() + i) % size(), piece.buffer));
  }
  CopyBytes(recv.data() + static_cast<size_t>(rank()) * n, send.data(), n);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    TROUPE_ASSIGN_OR_RETURN(const Buffer payload, run.ReceiveExactly(r, n));
    CopyBytes(recv.data() + static_cast<size_t>(r) * n, payload.data(), n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Buffer>> Collective::AllGatherV(Buffer send) {
  OperationRun run(this, OperationKind::kAllGather, send.size(), /*ragged=*/true);
  if (size() == 1) return std::vector<Buffer>{std::move(send)};
  TROUPE_ASSIGN_OR_RETURN(std::vector<Buffer> all, GatherAll(run, run.PrepareCopy(send.data(), send.size()), 0, {}));
  all[static_cast<size_t>(rank())] = std::move(send);
  return all;
}

absl::Status Collective::ReduceScatter(absl::Span<const float> send, absl::Span<float> recv) {
  return ReduceScatterV(send, std::vector<size_t>(ranks_.size(), recv.size()), recv);
}

absl::Status Collective::ReduceScatterV(absl::Span<const float> send, absl::Span<const size_t> counts,
                                        absl::Span<float> recv) {
  TROUPE_CHECK_EQ(counts.size(), ranks_.size());
  TROUPE_CHECK_EQ(send.size(), std::accumulate(counts.begin(), counts.end(), size_t{0}));
  TROUPE_CHECK_EQ(recv.size(), counts[static_cast<size_t>(rank())]);
  OperationRun run(this, OperationKind::kReduceScatter, send.size() * sizeof(float));
  return ReduceScatterChunks(run, send.data(), counts, recv.data());
}

absl::Status Collective::AllReduce(absl::Span<float> data) {
  OperationRun run(this, OperationKind::kAllReduce, data.size() * sizeof(float));
  return AllReduceSpan(run, data);
}

absl::Status Collective::AllReduce(absl::Span<double> data) {
  OperationRun run(this, OperationKind::kAllReduce, data.size() * sizeof(double));
  return AllReduceSpan(run, data);
}

absl::StatusOr<std::vector<Buffer>> Collective::AllToAll(std::vector<Buffer> send) {
  TROUPE_CHECK_EQ(send.size(), ranks_.size());
  size_t bytes = 0;
  for (const Buffer& buffer : send) bytes += buffer.size();
  OperationRun run(this, OperationKind::kAllToAll, bytes, /*ragged=*/true);
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size();
    const Buffer& data = send[static_cast<size_t>(to)];
    TROUPE_RETURN_IF_ERROR(run.Send(to, run.PrepareCopy(data.data(), data.size()).buffer));
  }
  std::vector<Buffer> received(send.size());
  for (int r = 0; r < size(); ++r) {
    const size_t at = static_cast<size_t>(r);
    if (r == rank()) {
      received[at] = std::move(send[at]);
    } else {
      TROUPE_ASSIGN_OR_RETURN(received[at], run.Receive(r));
    }
  }
  return received;
}

absl::Status Collective::Barrier() {
  OperationRun run(this, OperationKind::kBarrier, 0);
  int step = 0;
  for (int distance = 1; distance < size(); distance <<= 1, ++step) {
    TROUPE_RETURN_IF_ERROR(run.Send((rank() + distance) % size(), run.Prepare(0, step).buffer));
    TROUPE_RETURN_IF_ERROR(run.ReceiveExactly((rank() - distance + size()) % size(), 0, step).status());
  }
  return absl::OkStatus();
}

void Collective::Restart(PointToPoint* transport) {
  TROUPE_CHECK_EQ(transport->rank(), ranks_[static_cast<size_t>(index_)]);
  transport_ = transport;
  next_operation_ = 0;
}

}  // namespace troupe::runtime
