#include "engine/chat/chat_template.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace troupe::engine {
namespace {

void Append(std::vector<ChatSegment>& segments, std::string text, bool target) {
  if (text.empty()) return;
  if (!segments.empty() && segments.back().target == target) {
    segments.back().text += text;
  } else {
    segments.push_back({std::move(text), target});
  }
}

std::string StripNewlines(const std::string& text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end && text[begin] == '\n') ++begin;
  while (right && end > begin && text[end - 1] == '\n') --end;
  return text.substr(begin, end - begin);
}

/// <|im_start|>role\ncontent<|im_end|>\n
class ChatMl : public ChatTemplate {
 public:
  ChatMl(const char* name, std::string default_system) : name_(name), default_system_(std::move(default_system)) {}
  const char* name() const override { return name_; }

  std::vector<ChatSegment> Render(const std::vector<Message>& messages, const RenderOptions& options) const override {
    std::vector<ChatSegment> segments;
    if (!default_system_.empty() && (messages.empty() || messages[0].role != "system")) {
      Append(segments, "<|im_start|>system\n" + default_system_ + "<|im_end|>\n", false);
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      const bool target = messages[i].role == "assistant" && messages[i].train;
      Append(segments, "<|im_start|>" + messages[i].role + "\n", false);
      Append(segments, Content(messages, i) + "<|im_end|>", target);
      Append(segments, "\n", false);
    }
    if (options.add_generation_prompt) Append(segments, "<|im_start|>assistant\n" + PromptEnd(options), false);
    return segments;
  }

 protected:
  virtual std::string Content(const std::vector<Message>& messages, size_t i) const { return messages[i].content; }
  virtual std::string PromptEnd(const RenderOptions&) const { return ""; }

 private:
  const char* name_;
  std::string default_system_;
};

/// ChatML with reasoning: dropped from turns before the last question, and a think block, if an empty one, in the last turn.
class Qwen3 final : public ChatMl {
 public:
  Qwen3() : ChatMl("qwen3", "") {}

 protected:
  std::string Content(const std::vector<Message>& messages, size_t i) const override {
    const std::string& whole = messages[i].content;
    if (messages[i].role != "assistant") return whole;
    std::string reasoning, content = whole;
    if (const size_t first = whole.find("</think>"); first != std::string::npos) {
      reasoning = StripNewlines(whole.substr(0, first), false, true);
      if (const size_t open = reasoning.rfind("<think>"); open != std::string::npos) reasoning = reasoning.substr(open + 7);
      reasoning = StripNewlines(reasoning, true, false);
      content = StripNewlines(whole.substr(whole.rfind("</think>") + 8), true, false);
    }
    const bool after_last_query = std::none_of(messages.begin() + static_cast<std::ptrdiff_t>(i), messages.end(),
                                               [](const Message& m) { return m.role == "user"; });
    const bool last = i + 1 == messages.size();
    if (!after_last_query || (!last && reasoning.empty())) return content;
    return "<think>\n" + StripNewlines(reasoning, true, true) + "\n</think>\n\n" + StripNewlines(content, true, false);
  }
  std::string PromptEnd(const RenderOptions& options) const override {
    return options.enable_thinking ? "" : "<think>\n\n</think>\n\n";
  }
};

/// <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
class Llama3 final : public ChatTemplate {
 public:
  const char* name() const override { return "llama3"; }
  std::vector<ChatSegment> Render(const std::vector<Message>& messages, const RenderOptions& options) const override {
    std::vector<ChatSegment> segments;
    Append(segments, "<|begin_of_text|>", false);
    for (const Message& message : messages) {
      Append(segments, "<|start_header_id|>" + message.role + "<|end_header_id|>\n\n", false);
      Append(segments, std::string(absl::StripAsciiWhitespace(message.content)) + "<|eot_id|>", message.role == "assistant" && message.train);
    }
    if (options.add_generation_prompt) Append(segments, "<|start_header_id|>assistant<|end_header_id|>\n\n", false);
    return segments;
  }
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Recognise(const std::string& jinja) {
  using Made = std::shared_ptr<const ChatTemplate>;
  if (jinja.empty()) return Made(std::make_shared<ChatMl>("chatml", ""));
  if (absl::StrContains(jinja, "<|im_start|>")) {
    if (absl::StrContains(jinja, "enable_thinking") && absl::StrContains(jinja, "last_query_index")) return Made(std::make_shared<Qwen3>());
    if (!absl::StrContains(jinja, "think")) {
      const char* qwen25 = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
      const char* qwen2 = "You are a helpful assistant.";
      if (absl::StrContains(jinja, qwen25)) return Made(std::make_shared<ChatMl>("qwen2_5", qwen25));
      if (absl::StrContains(jinja, qwen2)) return Made(std::make_shared<ChatMl>("qwen2", qwen2));
      if (!absl::StrContains(jinja, "You are") && !absl::StrContains(jinja, "tools")) return Made(std::make_shared<ChatMl>("chatml", ""));
    }
  }
  if (absl::StrContains(jinja, "<|start_header_id|>") && absl::StrContains(jinja, "<|eot_id|>") && !absl::StrContains(jinja, "tools")) {
    return Made(std::make_shared<Llama3>());
  }
  return absl::UnimplementedError(absl::StrCat("chat_template is none of ChatML, Qwen2, Qwen2.5, Qwen3 and Llama 3: it begins ",
                                               jinja.substr(0, 60)));
}

}  // namespace troupe::engine
