#include "runtime/job/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace troupe::runtime {
namespace {

/// Looks for NT_GNU_BUILD_ID in the notes of the first object, which is the executable.
int FindNote(dl_phdr_info* info, size_t, void* out) {
  auto& id = *static_cast<std::string*>(out);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* const end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const char* const name = at + sizeof(note);
      const auto padded = [](size_t size) { return (size + 3) & ~size_t{3}; };
      const char* const value = name + padded(note.n_namesz);
      if (value + note.n_descsz > end) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        id = absl::BytesToHexString(absl::string_view(value, note.n_descsz));
        return 1;
      }
      at = value + padded(note.n_descsz);
    }
  }
  return 1;  // the libraries that follow have ids of their own
}

std::string HashOfFile() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::vector<uint64_t> words(1 << 17);
  uint64_t hash = 0xcbf29ce484222325;
  while (file) {
    words.back() = 0;
    file.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(words.size() * sizeof(uint64_t)));
    const auto read = static_cast<size_t>(file.gcount());
    if (read % sizeof(uint64_t) != 0) {
      std::memset(reinterpret_cast<char*>(words.data()) + read, 0, sizeof(uint64_t) - read % sizeof(uint64_t));
    }
    for (size_t i = 0; i < (read + sizeof(uint64_t) - 1) / sizeof(uint64_t); ++i) {
      hash = (hash ^ words[i]) * 0x100000001b3;
      hash ^= hash >> 29;
    }
  }
  return absl::StrCat("file-", absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(&FindNote, &id);
  return id.empty() ? HashOfFile() : id;
}

}  // namespace troupe::runtime
