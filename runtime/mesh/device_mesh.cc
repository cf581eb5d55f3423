#include "runtime/mesh/device_mesh.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace troupe::runtime {

namespace {

constexpr const char* kKnownDims[] = {"dp", "fsdp", "tp", "pp", "cp", "ep"};
constexpr const char* kForms = "a mesh is written 4, 2x2 (dp x fsdp) or dp=2,fsdp=2";

bool IsKnown(absl::string_view name) {
  return std::any_of(std::begin(kKnownDims), std::end(kKnownDims), [&](const char* known) { return name == known; });
}

absl::StatusOr<int> ParseSize(absl::string_view text, absl::string_view part) {
  const bool digits = !part.empty() && part.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!digits) {
    return absl::InvalidArgumentError(absl::StrCat("mesh \"", text, "\": \"", part, "\" is not a size; ", kForms));
  }
  int size = 0;
  if (!absl::SimpleAtoi(part, &size) || size > DeviceMesh::kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh \"", text, "\": size ", part, " is above the largest, ", DeviceMesh::kMaxSize));
  }
  if (size == 0) return absl::InvalidArgumentError(absl::StrCat("mesh \"", text, "\": a size is at least 1, not 0"));
  return size;
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<Dim> dims) : dims_(std::move(dims)) {
  for (const Dim& dim : dims_) size_ *= dim.size;
}

absl::StatusOr<DeviceMesh> DeviceMesh::FromDims(std::vector<Dim> dims) {
  if (dims.empty()) return absl::InvalidArgumentError(absl::StrCat("a mesh needs a dimension; ", kForms));
  int64_t size = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Dim& dim = dims[i];
    if (!IsKnown(dim.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh dimension \"", dim.name, "\" is unknown; there are ", absl::StrJoin(kKnownDims, ", ")));
    }
    for (size_t j = 0; j < i; ++j) {
      if (dims[j].name == dim.name) {
        return absl::InvalidArgumentError(
            absl::StrCat("mesh dimension ", dim.name, " is given twice: ", dims[j].size, " and ", dim.size));
      }
    }
    if (dim.size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh dimension ", dim.name, ": a size is at least 1, not ", dim.size));
    }
    size *= dim.size;
    if (size > kMaxSize) {
      return absl::InvalidArgumentError(absl::StrCat("a mesh of more than ", kMaxSize, " ranks is not supported"));
    }
  }
  return DeviceMesh(std::move(dims));
}

absl::StatusOr<DeviceMesh> DeviceMesh::Parse(absl::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat("mesh \"\" is empty; ", kForms));
  std::vector<Dim> dims;
  if (absl::StrContains(text, "=")) {
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
      if (!absl::StrContains(part, "=")) {
        return absl::InvalidArgumentError(
            absl::StrCat("mesh \"", text, "\": \"", part, "\" is not name=size; ", kForms));
      }
      TROUPE_ASSIGN_OR_RETURN(const int size, ParseSize(text, pair.second));
      dims.push_back({std::string(pair.first), size});
    }
  } else {
    const std::vector<absl::string_view> parts = absl::StrSplit(text, 'x');
    if (parts.size() > 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh \"", text, "\" has ", parts.size(), " sizes, of which only two have a name; ", kForms));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      TROUPE_ASSIGN_OR_RETURN(const int size, ParseSize(text, parts[i]));
      dims.push_back({kKnownDims[i], size});
    }
  }
  absl::StatusOr<DeviceMesh> mesh = FromDims(std::move(dims));
  if (!mesh.ok()) return Annotate(mesh.status(), absl::StrCat("mesh \"", text, "\""));
  return mesh;
}

int DeviceMesh::find(absl::string_view name) const {
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool DeviceMesh::has(absl::string_view name) const { return find(name) >= 0; }

int DeviceMesh::dim(absl::string_view name) const {
  const int i = find(name);
  return i < 0 ? 1 : dims_[static_cast<size_t>(i)].size;
}

std::vector<int> DeviceMesh::coordinates(int rank) const {
  TROUPE_CHECK(rank >= 0 && rank < size_) << "rank " << rank << " is not in mesh " << ToString();
  std::vector<int> coordinates(dims_.size());
  for (size_t i = dims_.size(); i-- > 0;) {
    coordinates[i] = rank % dims_[i].size;
    rank /= dims_[i].size;
  }
  return coordinates;
}

int DeviceMesh::coordinate(absl::string_view name, int rank) const {
  const int i = find(name);
  return i < 0 ? 0 : coordinates(rank)[static_cast<size_t>(i)];
}

int DeviceMesh::rank_of(absl::Span<const int> coordinates) const {
  TROUPE_CHECK_EQ(coordinates.size(), dims_.size());
  int rank = 0;
  for (size_t i = 0; i < dims_.size(); ++i) {
    TROUPE_CHECK(coordinates[i] >= 0 && coordinates[i] < dims_[i].size)
        << "coordinate " << coordinates[i] << " of " << dims_[i].name << " is not in mesh " << ToString();
    rank = rank * dims_[i].size + coordinates[i];
  }
  return rank;
}

std::vector<int> DeviceMesh::slice(absl::string_view name, int rank) const {
  const int i = find(name);
  if (i < 0) return {rank};
  std::vector<int> at = coordinates(rank);
  std::vector<int> ranks;
  for (int c = 0; c < dims_[static_cast<size_t>(i)].size; ++c) {
    at[static_cast<size_t>(i)] = c;
    ranks.push_back(rank_of(at));
  }
  return ranks;
}

absl::StatusOr<MeshSlice> DeviceMesh::sub_mesh(absl::Span<const std::string> names, int rank) const {
  std::vector<bool> kept(dims_.size(), false);
  for (const std::string& name : names) {
    const int i = find(name);
    if (i < 0) return absl::InvalidArgumentError(absl::StrCat("mesh ", ToString(), " has no dimension \"", name, "\""));
    if (kept[static_cast<size_t>(i)]) {
      return absl::InvalidArgumentError(absl::StrCat("dimension ", name, " of mesh ", ToString(), " is named twice"));
    }
    kept[static_cast<size_t>(i)] = true;
  }
  std::vector<Dim> dims;
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (kept[i]) dims.push_back(dims_[i]);
  }
  TROUPE_ASSIGN_OR_RETURN(DeviceMesh part, FromDims(std::move(dims)));
  std::vector<int> ranks;
  std::vector<int> at = coordinates(rank);
  for (int r = 0; r < part.size(); ++r) {
    const std::vector<int> inner = part.coordinates(r);
    size_t next = 0;
    for (size_t i = 0; i < dims_.size(); ++i) {
      if (kept[i]) at[i] = inner[next++];
    }
    ranks.push_back(rank_of(at));
  }
  return MeshSlice{std::move(part), std::move(ranks)};
}

int DeviceMesh::data_rank(int rank) const { return coordinate("dp", rank) * dim("fsdp") + coordinate("fsdp", rank); }

std::vector<int> DeviceMesh::data_representatives() const {
  std::vector<int> lowest(static_cast<size_t>(data_world_size()), -1);
  for (int rank = 0; rank < size_; ++rank) {
    int& slot = lowest[static_cast<size_t>(data_rank(rank))];
    if (slot < 0) slot = rank;
  }
  return lowest;
}

std::string DeviceMesh::ToString() const {
  return absl::StrJoin(dims_, ",",
                       [](std::string* out, const Dim& dim) { absl::StrAppend(out, dim.name, "=", dim.size); });
}

std::string DeviceMesh::Describe() const {
  const auto size = [](std::string* out, const Dim& dim) { absl::StrAppend(out, dim.size); };
  const auto named = [](std::string* out, const Dim& dim) { absl::StrAppend(out, dim.name, " ", dim.size); };
  return absl::StrCat(absl::StrJoin(dims_, "x", size), " (", absl::StrJoin(dims_, " x ", named), ", ", size_,
                      size_ == 1 ? " rank)" : " ranks)");
}

}  // namespace troupe::runtime
