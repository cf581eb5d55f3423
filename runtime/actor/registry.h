/// The classes that can be actors and how their methods are called from bytes; filled before main by TROUPE_ACTOR.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/msg/codec.h"
#include "runtime/msg/message.h"

namespace troupe::runtime {

class ActorContext;

struct MethodEntry {
  std::string name;
  std::string signature;
  bool idempotent = false;
  absl::StatusOr<Payload> (*invoke)(void* object, const std::string& body, const DecodeContext& context) = nullptr;
};

struct ConstructorEntry {
  std::string signature;
  absl::StatusOr<std::shared_ptr<void>> (*make)(ActorContext& actor, const std::string& body,
                                                const DecodeContext& context) = nullptr;
};

struct ClassEntry {
  std::string name;
  std::vector<MethodEntry> methods;                   ///< by method id
  std::map<uint64_t, ConstructorEntry> constructors;  ///< by the hash of their signature
  absl::Status (*restore)(void* object) = nullptr;    ///< null when the class has no hook
};

/// Threads  filled while one thread runs (before main, or dlopen); read by all afterwards.
class ClassRegistry {
 public:
  static ClassRegistry& Global();

  void AddClass(ClassEntry entry);
  uint64_t AddConstructor(const std::string& class_name, ConstructorEntry entry);
  /// Null when no such class is registered.
  const ClassEntry* Find(const std::string& name) const;
  /// Over the names and types of all methods and constructors, whatever order they were registered in.
  uint64_t SignatureHash() const;

 private:
  std::map<std::string, ClassEntry> classes_;
};

/// What two processes compare before they talk.
uint64_t RegisteredSignatureHash();

/// FNV-1a.
uint64_t HashText(const std::string& text);

}  // namespace troupe::runtime
