#include "runtime/actor/handle.h"

#include <utility>

#include "runtime/base/status.h"

namespace troupe::runtime::handle_internal {

ActorIdentity NewIdentity(Node& node, std::string class_name, const SpawnOptions& options) {
  ActorIdentity identity;
  identity.node = options.rank + 1;  // node 0 is the driver, worker rank r is node r + 1
  identity.actor = node.NewNumber();
  identity.rank = options.rank;
  identity.name = options.name;
  if (identity.name.empty()) identity.name = class_name.substr(class_name.rfind(':') + 1);
  identity.class_name = std::move(class_name);
  identity.restartable = options.max_restarts > 0;
  identity.host = node.HostOf(identity.node);
  return identity;
}

absl::Status RegisterActor(Node& node, const ActorIdentity& identity, const SpawnOptions& options) {
  if (options.max_restarts > 0) {
    TROUPE_RETURN_IF_ERROR(node.directory().SetMaxRestarts(identity.node, options.max_restarts));
  }
  if (options.name.empty()) return absl::OkStatus();
  return node.directory().RegisterName(options.name, {identity.node, identity.actor, identity.class_name});
}

}  // namespace troupe::runtime::handle_internal
