/// Arranges the ranks of a job in a grid with named dimensions.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace troupe::runtime {

struct MeshSlice;

/// A grid of `size()` ranks, numbered row-major: the last dimension varies fastest.
///
///   rank = (...(c[0] * n[1] + c[1]) * n[2] + ...) + c[k]
///   data_rank = c[dp] * n[fsdp] + c[fsdp], whatever the order of the dimensions
///
/// Dimensions are dp (replicas), fsdp (shards), tp, pp, cp and ep; one that is absent has size 1. Ranks that differ in
/// neither dp nor fsdp share a data_rank: they see the same rows.
class DeviceMesh {
 public:
  struct Dim {
    std::string name;
    int size = 1;
    friend bool operator==(const Dim& a, const Dim& b) { return a.name == b.name && a.size == b.size; }
  };

  /// The largest mesh that is accepted.
  static constexpr int kMaxSize = 1 << 16;

  /// One rank: dp = 1.
  DeviceMesh() : DeviceMesh(std::vector<Dim>{{"dp", 1}}) {}

  /// `4` (dp), `2x2` (dp x fsdp, dp outermost), or `dp=2,fsdp=2` with any of the dimensions in any order.
  ///
  /// Errors  INVALID_ARGUMENT naming the part that is wrong.
  static absl::StatusOr<DeviceMesh> Parse(absl::string_view text);
  static absl::StatusOr<DeviceMesh> FromDims(std::vector<Dim> dims);

  int size() const { return size_; }
  const std::vector<Dim>& dims() const { return dims_; }
  bool has(absl::string_view name) const;
  /// Size of a dimension, 1 when absent.
  int dim(absl::string_view name) const;

  std::vector<int> coordinates(int rank) const;
  /// One coordinate, 0 when the dimension is absent.
  int coordinate(absl::string_view name, int rank) const;
  /// Checks  one coordinate a dimension, each within its dimension.
  int rank_of(absl::Span<const int> coordinates) const;

  /// The ranks that differ from `rank` in dimension `name` alone, `rank` included, in the order of their coordinate.
  std::vector<int> slice(absl::string_view name, int rank) const;
  /// The ranks that differ from `rank` in the named dimensions alone, as a mesh of these dimensions in the order of
  /// this mesh.
  ///
  /// Errors  INVALID_ARGUMENT when a dimension is absent or named twice.
  absl::StatusOr<MeshSlice> sub_mesh(absl::Span<const std::string> names, int rank) const;

  int data_world_size() const { return dim("dp") * dim("fsdp"); }
  int data_rank(int rank) const;
  /// The lowest rank of each data_rank, in the order of data_rank.
  std::vector<int> data_representatives() const;

  /// `dp=2,fsdp=2`; Parse gives the same mesh back.
  std::string ToString() const;
  /// The grid for people: `2x2 (dp 2 x fsdp 2, 4 ranks)`.
  std::string Describe() const;

  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b) { return a.dims_ == b.dims_; }
  friend bool operator!=(const DeviceMesh& a, const DeviceMesh& b) { return !(a == b); }

  /// Travels as its string; the types of msgpack are parameters, so that this header need not include it.
  template <typename Packer>
  void msgpack_pack(Packer& packer) const {
    packer.pack(ToString());
  }
  template <typename Object>
  void msgpack_unpack(Object object) {
    const std::string text = object.operator std::string();
    absl::StatusOr<DeviceMesh> mesh = Parse(text);
    // The codec turns whatever is thrown into a status.
    if (!mesh.ok()) throw std::invalid_argument(std::string(mesh.status().message()));
    *this = *std::move(mesh);
  }

 private:
  explicit DeviceMesh(std::vector<Dim> dims);
  int find(absl::string_view name) const;

  std::vector<Dim> dims_;
  int size_ = 1;
};

/// Part of a mesh: rank i of `mesh` is rank `ranks[i]` of the whole.
struct MeshSlice {
  DeviceMesh mesh;
  std::vector<int> ranks;
};

}  // namespace troupe::runtime
