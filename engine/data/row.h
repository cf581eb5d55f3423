/// One line of a dataset file, in any of the forms that ms-swift reads.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/chat/chat_template.h"

namespace troupe::engine {

/// A conversation, or plain text to pretrain on.
struct Row {
  std::vector<Message> messages;
  std::string text;
  bool is_text = false;
};

/// The form is told by the keys:
///   messages, conversations, conversation   turns with role/from and content/value, or {human, assistant} pairs
///   query/response (and prompt, question, problem; answer, output, ...) with system and history
///   instruction, input, output              instruction and input joined by a newline
///   text                                    alone: pretraining
/// Errors  INVALID_ARGUMENT naming the key and what is wrong
absl::StatusOr<Row> ParseRow(const std::string& line);

}  // namespace troupe::engine
