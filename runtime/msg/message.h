/// One message between nodes: an envelope, a packed body, and tensors as frames of their own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/msg/buffer.h"
#include "runtime/msg/envelope.h"

namespace troupe::runtime {

/// Arguments or a result: a msgpack body that refers to `frames` by their index.
struct Payload {
  std::string body;
  std::vector<Buffer> frames;

  size_t bytes() const {
    size_t total = body.size();
    for (const Buffer& frame : frames) total += frame.size();
    return total;
  }
};

struct Message {
  Envelope envelope;
  std::string body;
  std::vector<Buffer> frames;
};

/// Puts a message together from its parts on the wire: envelope, body, frames.
///
/// Frames that are not 64-byte aligned are copied to where they are; the others are shared.
/// Errors  INVALID_ARGUMENT naming what is wrong: too few parts, a count or size that does not agree, a limit passed.
absl::StatusOr<Message> ParseMessage(absl::Span<const Buffer> parts, const MessageLimits& limits);

/// The same from parts that were already taken apart.
absl::StatusOr<Message> AssembleMessage(const Envelope& envelope, std::string body, std::vector<Buffer> frames,
                                        const MessageLimits& limits);

/// `buffer` if it begins at a multiple of 64 bytes, else a copy that does.
Buffer Aligned(const Buffer& buffer);

}  // namespace troupe::runtime
