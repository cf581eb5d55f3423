/// Control messages as bytes, and the types of the runtime as control messages.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/control/control.pb.h"
#include "runtime/node/directory.h"

namespace troupe::runtime::internal {

/// Grows when a peer of the version before could misunderstand us.
constexpr uint32_t kControlProtocol = 1;
constexpr size_t kMaxControlBytes = 1 << 20;
/// Of names, hosts, endpoints, build ids and paths.
constexpr size_t kMaxControlText = 4096;

std::string EncodeControl(const control::Message& message);

/// Errors  INVALID_ARGUMENT for what is too long, no message, of no known kind, or has a text, list or number out of bounds.
absl::StatusOr<control::Message> ParseControl(absl::string_view bytes);

control::Status ToControl(const absl::Status& status);
absl::Status FromControl(const control::Status& status);
control::Node ToControl(const NodeAddress& node);
NodeAddress FromControl(const control::Node& node);

/// The name of a message's kind, for people.
std::string KindOf(const control::Message& message);

}  // namespace troupe::runtime::internal
