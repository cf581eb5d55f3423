#include "runtime/actor/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace troupe::runtime {

uint64_t HashText(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

ClassRegistry& ClassRegistry::Global() {
  static auto* registry = new ClassRegistry();  // never destroyed: threads may outlive main
  return *registry;
}

void ClassRegistry::AddClass(ClassEntry entry) {
  ClassEntry& known = classes_[entry.name];
  if (known.methods.empty()) {
    entry.constructors = std::move(known.constructors);
    known = std::move(entry);
    return;
  }
  // A header that says TROUPE_ACTOR does so in every file that includes it.
  TROUPE_CHECK_EQ(known.methods.size(), entry.methods.size()) << "two actors are called " << entry.name;
  for (size_t i = 0; i < known.methods.size(); ++i) {
    TROUPE_CHECK_EQ(known.methods[i].signature, entry.methods[i].signature) << "two actors are called " << entry.name;
  }
}

uint64_t ClassRegistry::AddConstructor(const std::string& class_name, ConstructorEntry entry) {
  const uint64_t key = HashText(entry.signature);
  classes_[class_name].name = class_name;
  classes_[class_name].constructors.emplace(key, std::move(entry));
  return key;
}

const ClassEntry* ClassRegistry::Find(const std::string& name) const {
  const auto found = classes_.find(name);
  return found == classes_.end() ? nullptr : &found->second;
}

uint64_t ClassRegistry::SignatureHash() const {
  std::string text;
  for (const auto& [name, entry] : classes_) {
    absl::StrAppend(&text, name, "{");
    for (const MethodEntry& method : entry.methods) {
      absl::StrAppend(&text, method.name, ":", method.signature, method.idempotent ? "!" : "", ";");
    }
    for (const auto& [key, constructor] : entry.constructors) absl::StrAppend(&text, constructor.signature, ";");
    absl::StrAppend(&text, "}");
  }
  return HashText(text);
}

uint64_t RegisteredSignatureHash() { return ClassRegistry::Global().SignatureHash(); }

}  // namespace troupe::runtime
