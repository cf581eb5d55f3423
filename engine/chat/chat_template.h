/// Turns a conversation into the text that a model was trained on, and says which parts of it are the assistant's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::engine {

struct Message {
  std::string role;  ///< system, user, assistant, tool
  std::string content;
  bool train = true;  ///< false: an assistant turn that the loss leaves out
};

/// A run of the rendered text.
struct ChatSegment {
  std::string text;
  bool target = false;  ///< an assistant's text with its end-of-turn token
};

struct RenderOptions {
  bool add_generation_prompt = false;
  bool enable_thinking = true;  ///< Qwen3: false closes the think block in the generation prompt
};

/// Threads  thread-safe
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  /// ChatML for an empty text; else ChatML, Qwen2, Qwen2.5, Qwen3 or Llama 3 by what the Jinja text contains.
  ///
  /// Errors  UNIMPLEMENTED when it is none of these
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Recognise(const std::string& jinja);

  virtual const char* name() const = 0;
  virtual std::vector<ChatSegment> Render(const std::vector<Message>& messages, const RenderOptions& options) const = 0;
};

}  // namespace troupe::engine
