#include "engine/io/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/io/half.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxDims = 8;
using Json = nlohmann::json;

absl::Status Broken(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

size_t BytesOfDType(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "BF16" || dtype == "F16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

const char* FileName(DType dtype) { return dtype == DType::kF32 ? "F32" : dtype == DType::kBF16 ? "BF16" : "F16"; }

absl::StatusOr<TensorEntry> ParseEntry(const std::string& path, const std::string& name, const Json& json, const std::byte* data,
                                       uint64_t data_size) {
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets")) {
    return Broken(path, absl::StrCat("tensor ", name, " lacks dtype, shape or data_offsets"));
  }
  TensorEntry entry;
  entry.name = name;
  if (!json["dtype"].is_string()) return Broken(path, absl::StrCat("tensor ", name, ": dtype is not a string"));
  entry.dtype = json["dtype"].get<std::string>();
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  if (!shape.is_array() || shape.size() > kMaxDims || !offsets.is_array() || offsets.size() != 2) {
    return Broken(path, absl::StrCat("tensor ", name, ": shape or data_offsets is not a list of the right length"));
  }
  uint64_t elements = 1;
  for (const Json& dim : shape) {
    if (!dim.is_number_unsigned()) return Broken(path, absl::StrCat("tensor ", name, ": shape has ", dim.dump()));
    const auto size = dim.get<uint64_t>();
    if (size > 0 && elements > (uint64_t{1} << 48) / size) return Broken(path, absl::StrCat("tensor ", name, ": shape is too large"));
    elements *= size;
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return Broken(path, absl::StrCat("tensor ", name, ": data_offsets is ", offsets.dump()));
  }
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > data_size) {
    return Broken(path, absl::StrCat("tensor ", name, " lies at bytes ", begin, " to ", end, " of ", data_size,
                                     " that the file has after its header: is the file cut off?"));
  }
  const size_t width = BytesOfDType(entry.dtype);
  if (width != 0 && end - begin != elements * width) {
    return Broken(path, absl::StrCat("tensor ", name, " of shape ", ToString(entry.shape), " and dtype ", entry.dtype, " has ", end - begin,
                                     " bytes, not ", elements * width));
  }
  entry.bytes = {data + begin, static_cast<size_t>(end - begin)};
  return entry;
}

/// The header, or why there is none.  nlohmann's parser would keep the last of two equal keys.
absl::StatusOr<Json> ParseHeader(const std::string& path, const char* begin, const char* end) {
  std::set<std::string> names;
  std::string twice;
  const auto watch_names = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json header = Json::parse(begin, end, watch_names, /*allow_exceptions=*/false);
  if (!header.is_object()) return Broken(path, "header is not a JSON object");
  if (!twice.empty()) return Broken(path, absl::StrCat("tensor ", twice, " is there twice"));
  return header;
}

/// Tensors lie one after the other and fill the file.
absl::Status CheckLayout(const std::string& path, const std::map<std::string, TensorEntry>& tensors, const std::byte* data,
                         uint64_t data_size) {
  std::vector<const TensorEntry*> order;
  for (const auto& [name, entry] : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  uint64_t end = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry* entry : order) {
    const auto begin = static_cast<uint64_t>(entry->bytes.data() - data);
    if (begin < end) {
      return Broken(path, absl::StrCat("tensors ", before->name, " and ", entry->name, " overlap: the one ends at byte ", end,
                                       ", the other begins at ", begin));
    }
    if (begin > end) return Broken(path, absl::StrCat("bytes ", end, " to ", begin, " before tensor ", entry->name, " belong to none"));
    end = begin + entry->bytes.size();
    before = entry;
  }
  if (end != data_size) return Broken(path, absl::StrCat("tensors end at byte ", end, " of ", data_size, " after the header"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return Broken(path, "is not a file");
  }
  if (info.st_size < 8) {
    close(fd);
    return Broken(path, absl::StrCat("has ", info.st_size, " bytes: too few for a safetensors file"));
  }
  file->size_ = static_cast<size_t>(info.st_size);
  void* mapping = mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int mmap_errno = errno;
  close(fd);
  if (mapping == MAP_FAILED) return absl::InternalError(absl::StrCat(path, ": mmap: ", std::strerror(mmap_errno)));
  file->mapping_ = mapping;

  const auto* bytes = static_cast<const std::byte*>(mapping);
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes, 8);
  if (header_size > kMaxHeader || header_size > file->size_ - 8) {
    return Broken(path, absl::StrCat("header of ", header_size, " bytes in a file of ", file->size_, ": cut off, or not safetensors"));
  }
  const auto* text = reinterpret_cast<const char*>(bytes + 8);
  TROUPE_ASSIGN_OR_RETURN(const Json header, ParseHeader(path, text, text + header_size));
  const std::byte* data = bytes + 8 + header_size;
  const uint64_t data_size = file->size_ - 8 - header_size;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") continue;
    TROUPE_ASSIGN_OR_RETURN(TensorEntry entry, ParseEntry(path, name, json, data, data_size));
    file->tensors_.emplace(name, std::move(entry));
  }
  TROUPE_RETURN_IF_ERROR(CheckLayout(path, file->tensors_, data, data_size));
  return std::shared_ptr<const SafetensorsFile>(std::move(file));
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) munmap(mapping_, size_);
}

absl::Status ReadElements(const TensorEntry& tensor, int64_t begin, int64_t count, float* values) {
  TROUPE_CHECK_GE(begin, 0);
  TROUPE_CHECK_LE(begin + count, NumElements(tensor.shape));
  const auto first = static_cast<size_t>(begin), n = static_cast<size_t>(count);
  const auto widen = [&](float (*to_float)(uint16_t)) {
    const std::byte* source = tensor.bytes.data() + first * 2;
    for (size_t i = 0; i < n; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, source + i * 2, 2);
      values[i] = to_float(half);
    }
  };
  if (tensor.dtype == "F32") {
    std::memcpy(values, tensor.bytes.data() + first * 4, n * 4);
  } else if (tensor.dtype == "BF16") {
    widen(Bf16ToFloat);
  } else if (tensor.dtype == "F16") {
    widen(F16ToFloat);
  } else {
    return absl::UnimplementedError(absl::StrCat("tensor ", tensor.name, " has dtype ", tensor.dtype, ": only F32, BF16 and F16 are read"));
  }
  return absl::OkStatus();
}

namespace {

absl::Status CannotWrite(const std::string& path, uint64_t size, int error) {
  const std::string what = absl::StrCat("cannot write ", path, " of ", size, " bytes: ", std::strerror(error));
  if (error != ENOSPC && error != EDQUOT) return absl::UnavailableError(what);
  struct statvfs disk {};
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (statvfs(folder.empty() ? "." : folder.c_str(), &disk) != 0) return absl::ResourceExhaustedError(what);
  return absl::ResourceExhaustedError(absl::StrCat(what, "; ", static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize, " bytes are free"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(const std::string& path, std::vector<Entry> entries) {
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  writer->path_ = path;
  // Wider elements first, so that every tensor is aligned to its own elements.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return SizeOf(a.dtype) > SizeOf(b.dtype); });
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t offset = 0;
  for (const Entry& entry : entries) {
    const uint64_t size = static_cast<uint64_t>(NumElements(entry.shape)) * SizeOf(entry.dtype);
    header[entry.name] = {{"dtype", FileName(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {offset, offset + size}}};
    writer->places_[entry.name] = {entry, offset, 0};
    offset += size;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  for (auto& [name, place] : writer->places_) place.offset += 8 + text.size();
  writer->size_ = offset + 8 + text.size();
  writer->fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer->fd_ < 0) return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  // Only a full disk counts: not every file system can do this.
  if (fallocate(writer->fd_, 0, 0, static_cast<off_t>(writer->size_)) != 0 && (errno == ENOSPC || errno == EDQUOT)) {
    return CannotWrite(path, writer->size_, errno);
  }
  const uint64_t header_size = text.size();
  TROUPE_RETURN_IF_ERROR(writer->WriteAt(&header_size, 8, 0));
  TROUPE_RETURN_IF_ERROR(writer->WriteAt(text.data(), text.size(), 8));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SafetensorsWriter::WriteAt(const void* data, size_t size, uint64_t offset) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = pwrite(fd_, bytes, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return CannotWrite(path_, size_, errno);
    bytes += written;
    size -= static_cast<size_t>(written);
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::WriteRange(const std::string& name, int64_t begin, absl::Span<const float> values) {
  const auto found = places_.find(name);
  if (found == places_.end()) return absl::InvalidArgumentError(absl::StrCat(path_, " has no place for tensor ", name));
  Place& place = found->second;
  const auto count = static_cast<int64_t>(values.size());
  TROUPE_CHECK_GE(begin, 0);
  TROUPE_CHECK_LE(begin + count, NumElements(place.entry.shape));
  place.written += count;
  const DType dtype = place.entry.dtype;
  const uint64_t offset = place.offset + static_cast<uint64_t>(begin) * SizeOf(dtype);
  if (dtype == DType::kF32) return WriteAt(values.data(), values.size() * 4, offset);
  std::vector<uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), dtype == DType::kBF16 ? FloatToBf16 : FloatToF16);
  return WriteAt(halves.data(), halves.size() * 2, offset);
}

absl::Status SafetensorsWriter::Finish() {
  for (const auto& [name, place] : places_) {
    if (place.written != NumElements(place.entry.shape)) {
      return absl::FailedPreconditionError(absl::StrCat(path_, ": ", place.written, " of ", NumElements(place.entry.shape),
                                                        " elements of tensor ", name, " were written"));
    }
  }
  if (fsync(fd_) != 0) return absl::UnavailableError(absl::StrCat("cannot sync ", path_, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace troupe::engine
