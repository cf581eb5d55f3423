#include "runtime/msg/message.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace troupe::runtime {
namespace {

absl::string_view View(const Buffer& buffer) {
  return absl::string_view(reinterpret_cast<const char*>(buffer.data()), buffer.size());
}

}  // namespace

Buffer Aligned(const Buffer& buffer) {
  constexpr uintptr_t kAlignment = 64;
  if (reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment == 0) return buffer;
  return Buffer::Copy(buffer.data(), buffer.size());
}

absl::StatusOr<Message> AssembleMessage(const Envelope& envelope, std::string body, std::vector<Buffer> frames,
                                        const MessageLimits& limits) {
  if (envelope.frame_count != frames.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: envelope says ", envelope.frame_count, " frames, ", frames.size(), " came"));
  }
  if (envelope.body_length != body.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: envelope says a body of ", envelope.body_length, " bytes, ", body.size(), " came"));
  }
  uint64_t total = 0;
  for (const Buffer& frame : frames) {
    total += frame.size();
    if (total > limits.frame_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("message: frames of more than ", limits.frame_bytes, " bytes"));
    }
  }
  for (Buffer& frame : frames) frame = Aligned(frame);
  return Message{envelope, std::move(body), std::move(frames)};
}

absl::StatusOr<Message> ParseMessage(absl::Span<const Buffer> parts, const MessageLimits& limits) {
  if (parts.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("message: ", parts.size(), " parts, at least 2 are needed"));
  }
  TROUPE_ASSIGN_OR_RETURN(const Envelope envelope, ParseEnvelope(View(parts[0]), limits));
  return AssembleMessage(envelope, std::string(View(parts[1])), std::vector<Buffer>(parts.begin() + 2, parts.end()),
                         limits);
}

}  // namespace troupe::runtime
