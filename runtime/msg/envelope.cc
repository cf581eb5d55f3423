#include "runtime/msg/envelope.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace troupe::runtime {

static_assert(std::endian::native == std::endian::little, "the envelope is sent as it lies in memory");
static_assert(std::is_trivially_copyable_v<Envelope>);

const char* MessageKindName(MessageKind kind) {
  switch (kind) {
    case MessageKind::kCreate:
      return "create";
    case MessageKind::kCall:
      return "call";
    case MessageKind::kReply:
      return "reply";
    case MessageKind::kCancel:
      return "cancel";
    case MessageKind::kDestroy:
      return "destroy";
    case MessageKind::kFetch:
      return "fetch";
    case MessageKind::kRelease:
      return "release";
    case MessageKind::kLost:
      return "lost";
    case MessageKind::kChannel:
      return "channel";
    case MessageKind::kChannelRevoke:
      return "channel revoke";
    case MessageKind::kChannelReset:
      return "channel reset";
    case MessageKind::kIntrospect:
      return "introspect";
    case MessageKind::kShutdown:
      return "shutdown";
  }
  return "unknown";
}

bool ExpectsReply(MessageKind kind) {
  switch (kind) {
    case MessageKind::kCreate:
    case MessageKind::kCall:
    case MessageKind::kDestroy:
    case MessageKind::kFetch:
    case MessageKind::kIntrospect:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<Envelope> ParseEnvelope(absl::string_view bytes, const MessageLimits& limits) {
  const auto broken = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("envelope: ", parts...));
  };
  if (bytes.size() != sizeof(Envelope)) return broken("has ", bytes.size(), " bytes, not ", sizeof(Envelope));
  Envelope envelope;
  std::memcpy(static_cast<void*>(&envelope), bytes.data(), sizeof(envelope));
  if (envelope.magic != Envelope::kMagic) return broken("magic is ", absl::Hex(envelope.magic));
  if (envelope.version != Envelope::kVersion) {
    return broken("version is ", envelope.version, ", this build speaks ", Envelope::kVersion);
  }
  const auto kind = static_cast<uint8_t>(envelope.kind);
  if (kind == 0 || kind > kLastMessageKind) return broken("kind ", kind, " is not known");
  if (envelope.sender_node < 0) return broken("sender is ", envelope.sender_node);
  if (envelope.receiver_node < 0) return broken("receiver is ", envelope.receiver_node);
  if (envelope.body_length > limits.body_bytes) {
    return broken("body of ", envelope.body_length, " bytes, limit ", limits.body_bytes);
  }
  if (envelope.frame_count > limits.frames) {
    return broken(envelope.frame_count, " frames, limit ", limits.frames);
  }
  return envelope;
}

}  // namespace troupe::runtime
