#include "runtime/control/internal/wire.h"

#include <google/protobuf/descriptor.h>

#include "runtime/base/status.h"

namespace troupe::runtime::internal {
namespace {

constexpr int kMaxListLength = 65536;
constexpr int64_t kMaxNode = 1 << 20;

absl::Status CheckText(absl::string_view what, absl::string_view text) {
  if (text.size() <= kMaxControlText) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("control message: ", what, " of ", text.size(), " bytes, at most ", kMaxControlText, " are allowed"));
}

absl::Status CheckNumber(absl::string_view what, int64_t number, int64_t least, int64_t most) {
  if (number >= least && number <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("control message: ", what, " ", number, " is not between ", least, " and ", most));
}

absl::Status CheckNode(const control::Node& node) {
  TROUPE_RETURN_IF_ERROR(CheckNumber("node", node.id(), 0, kMaxNode));
  TROUPE_RETURN_IF_ERROR(CheckNumber("rank", node.rank(), -1, kMaxNode));
  TROUPE_RETURN_IF_ERROR(CheckText("endpoint", node.endpoint()));
  return CheckText("host", node.host());
}

template <typename Lines>
absl::Status CheckList(absl::string_view what, const Lines& lines) {
  return CheckNumber(what, lines.size(), 0, kMaxListLength);
}

/// Text that is shown as it is, or becomes part of a path, has bounds; what only has a size is bounded by the message.
absl::Status CheckBody(const control::Message& message) {
  using Body = control::Message::BodyCase;
  switch (message.body_case()) {
    case Body::kAgentHello:
      TROUPE_RETURN_IF_ERROR(CheckNumber("cores", message.agent_hello().cores(), 1, kMaxNode));
      return CheckText("host", message.agent_hello().host());
    case Body::kNodeHello:
      TROUPE_RETURN_IF_ERROR(CheckText("build id", message.node_hello().build_id()));
      return CheckNode(message.node_hello().node());
    case Body::kRegisterName:
      TROUPE_RETURN_IF_ERROR(CheckNumber("node", message.register_name().node(), 0, kMaxNode));
      TROUPE_RETURN_IF_ERROR(CheckText("class", message.register_name().class_name()));
      return CheckText("name", message.register_name().name());
    case Body::kLookUpName: return CheckText("name", message.look_up_name().name());
    case Body::kRemoveName: return CheckText("name", message.remove_name().name());
    case Body::kSetMaxRestarts: return CheckNumber("node", message.set_max_restarts().node(), 0, kMaxNode);
    case Body::kSubmitJob:
      TROUPE_RETURN_IF_ERROR(CheckNumber("number of words", message.submit_job().command_size(), 1, kMaxListLength));
      TROUPE_RETURN_IF_ERROR(CheckText("directory", message.submit_job().working_directory()));
      TROUPE_RETURN_IF_ERROR(CheckText("directory", message.submit_job().job_dir()));
      return CheckNumber("number of workers", message.submit_job().num_workers(), 1, kMaxNode - 1);
    case Body::kProcessExited: return CheckList("number of lines", message.process_exited().last_lines());
    case Body::kLogLines: return CheckList("number of lines", message.log_lines().lines());
    case Body::kSetLogDirectory: return CheckText("directory", message.set_log_directory().directory());
    case Body::kNodeUp: return CheckNode(message.node_up().node());
    case Body::kNodeDown: return CheckNode(message.node_down().node());
    case Body::kStartProcess:
      TROUPE_RETURN_IF_ERROR(CheckNumber("number of words", message.start_process().command_size(), 1, kMaxListLength));
      return CheckNode(message.start_process().node());
    case Body::BODY_NOT_SET: return absl::InvalidArgumentError("control message: of no known kind");
    default: return absl::OkStatus();
  }
}

}  // namespace

std::string EncodeControl(const control::Message& message) { return message.SerializeAsString(); }

absl::StatusOr<control::Message> ParseControl(absl::string_view bytes) {
  if (bytes.size() > kMaxControlBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("control message: ", bytes.size(), " bytes, at most ", kMaxControlBytes, " are allowed"));
  }
  control::Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("control message: ", bytes.size(), " bytes that are no message"));
  }
  TROUPE_RETURN_IF_ERROR(CheckBody(message));
  return message;
}

control::Status ToControl(const absl::Status& status) {
  control::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
  return out;
}

absl::Status FromControl(const control::Status& status) {
  constexpr int kLast = static_cast<int>(absl::StatusCode::kUnauthenticated);
  const bool known = status.code() >= 0 && status.code() <= kLast;
  return absl::Status(known ? static_cast<absl::StatusCode>(status.code()) : absl::StatusCode::kUnknown, status.message());
}

control::Node ToControl(const NodeAddress& node) {
  control::Node out;
  out.set_id(node.id);
  out.set_incarnation(node.incarnation);
  out.set_rank(node.rank);
  out.set_endpoint(node.endpoint);
  out.set_host(node.host);
  out.set_pid(node.pid);
  return out;
}

NodeAddress FromControl(const control::Node& node) {
  NodeAddress out;
  out.id = node.id();
  out.incarnation = node.incarnation();
  out.rank = node.rank();
  out.endpoint = node.endpoint();
  out.host = node.host();
  out.pid = node.pid();
  return out;
}

std::string KindOf(const control::Message& message) {
  const auto* field = control::Message::descriptor()->FindFieldByNumber(message.body_case());
  return field == nullptr ? "nothing" : field->name();
}

}  // namespace troupe::runtime::internal
