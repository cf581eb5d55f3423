/// The fixed header of every message between nodes: who sends what to which incarnation of whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace troupe::runtime {

enum class MessageKind : uint8_t {
  kCreate = 1,          ///< make an actor; answered by kReply
  kCall = 2,            ///< run a method; answered by kReply
  kReply = 3,           ///< value, error or place of the value of request `request`
  kCancel = 4,          ///< drop request `request` of the sender if it has not started
  kDestroy = 5,         ///< end an actor; answered by kReply
  kFetch = 6,           ///< send the object numbered `actor`; answered by kReply
  kRelease = 7,         ///< the object numbered `actor` is not needed any more
  kLost = 8,            ///< calls [sequence, request) of `session` never arrived and never will run
  kChannel = 9,         ///< one piece of a collective: channel `actor`, tag `session`, ranks in `sequence`
  kChannelRevoke = 10,  ///< channel `actor` is broken: the body says why
  kChannelReset = 11,   ///< channel `actor` starts again with epoch `method`
  kIntrospect = 12,     ///< answered by kReply with a NodeReport
  kShutdown = 13,       ///< the job ends
};
constexpr uint8_t kLastMessageKind = 13;

/// Bits of Envelope::flags.
enum MessageFlag : uint8_t {
  kFlagError = 1,        ///< kReply: the body is a status
  kFlagRemote = 2,       ///< kReply: the body is an ObjectPlace
  kFlagRestartable = 4,  ///< kCall: the actor may be about to be made again, so wait for it
  kFlagRefs = 8,         ///< kCall: the first frame lists the ObjectRefs among the arguments
  kFlagRestart = 16,     ///< kCreate: the actor lived on an earlier incarnation, so call its restore hook
  kFlagRefused = 32,     ///< kReply: the request did not run and will not
};

/// Plain data, sent as it lies in memory (little-endian machines only, checked at compile time).
struct Envelope {
  static constexpr uint32_t kMagic = 0x65707274;  // "trpe"
  static constexpr uint16_t kVersion = 1;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  MessageKind kind = MessageKind::kCall;
  uint8_t flags = 0;
  uint64_t job_epoch = 0;
  int32_t sender_node = -1;
  uint32_t sender_incarnation = 0;
  int32_t receiver_node = -1;
  uint32_t receiver_incarnation = 0;  ///< the one that the sender expects
  uint64_t actor = 0;
  uint64_t session = 0;   ///< of a handle, unique on the sender's incarnation
  uint64_t sequence = 0;  ///< of a call within its session
  uint64_t request = 0;   ///< names the answer, unique on the requester's incarnation
  uint32_t method = 0;
  uint32_t frame_count = 0;
  int64_t timeout_nanos = 0;  ///< time left when it was sent: clocks of hosts differ
  uint64_t trace_id = 0;
  uint64_t body_length = 0;
};
static_assert(sizeof(Envelope) == 96);

/// What a receiver accepts; more is refused before memory is taken for it.
struct MessageLimits {
  uint64_t body_bytes = uint64_t{1} << 32;
  uint64_t frame_bytes = uint64_t{1} << 40;
  uint32_t frames = 1 << 16;
};

const char* MessageKindName(MessageKind kind);
/// Whether a message of this kind is a request, whose sender waits for a kReply.
bool ExpectsReply(MessageKind kind);

/// Errors  INVALID_ARGUMENT naming the field that is wrong.
absl::StatusOr<Envelope> ParseEnvelope(absl::string_view bytes, const MessageLimits& limits);

}  // namespace troupe::runtime
