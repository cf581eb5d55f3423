#include "engine/data/row.h"

#include <nlohmann/json.hpp>

#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;

absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

const Json* FindAny(const Json& json, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = json.find(key);
    if (found != json.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

absl::StatusOr<std::string> TextOf(const Json& json, const char* what) {
  if (!json.is_string()) return Wrong(absl::StrCat(what, " is not a string: ", json.dump().substr(0, 60)));
  return json.get<std::string>();
}

absl::StatusOr<std::string> RoleOf(const std::string& role) {
  if (role == "system" || role == "user" || role == "assistant" || role == "tool") return role;
  if (role == "human") return std::string("user");
  if (role == "gpt" || role == "bot") return std::string("assistant");
  if (role == "tool_response" || role == "observation") return std::string("tool");
  return Wrong(absl::StrCat("role \"", role, "\" is none of system, user, assistant and tool"));
}

absl::Status ParseTurns(const Json& turns, Row& row) {
  if (!turns.is_array()) return Wrong("messages is not a list");
  for (const Json& turn : turns) {
    if (!turn.is_object()) return Wrong("a message is not an object");
    if (const Json* human = FindAny(turn, {"human"}); human != nullptr) {
      TROUPE_ASSIGN_OR_RETURN(std::string text, TextOf(*human, "human"));
      row.messages.push_back({"user", std::move(text)});
      if (const Json* assistant = FindAny(turn, {"assistant"}); assistant != nullptr) {
        TROUPE_ASSIGN_OR_RETURN(std::string answer, TextOf(*assistant, "assistant"));
        row.messages.push_back({"assistant", std::move(answer)});
      }
      continue;
    }
    const Json* role = FindAny(turn, {"role", "from"});
    const Json* content = FindAny(turn, {"content", "value"});
    if (role == nullptr || content == nullptr) return Wrong("a message lacks role or content");
    TROUPE_ASSIGN_OR_RETURN(const std::string name, TextOf(*role, "role"));
    Message message;
    TROUPE_ASSIGN_OR_RETURN(message.role, RoleOf(name));
    TROUPE_ASSIGN_OR_RETURN(message.content, TextOf(*content, "content"));
    if (const Json* loss = FindAny(turn, {"loss"}); loss != nullptr) {
      if (!loss->is_boolean()) return Wrong("loss of a message is not true or false");
      message.train = loss->get<bool>();
    }
    row.messages.push_back(std::move(message));
  }
  return absl::OkStatus();
}

absl::Status ParseHistory(const Json& history, Row& row) {
  if (!history.is_array()) return Wrong("history is not a list");
  for (const Json& turn : history) {
    if (!turn.is_array() || turn.size() != 2) return Wrong("history holds something that is not a pair");
    TROUPE_ASSIGN_OR_RETURN(std::string query, TextOf(turn[0], "history"));
    TROUPE_ASSIGN_OR_RETURN(std::string response, TextOf(turn[1], "history"));
    row.messages.push_back({"user", std::move(query)});
    row.messages.push_back({"assistant", std::move(response)});
  }
  return absl::OkStatus();
}

absl::StatusOr<Row> ParseObject(const Json& json) {
  Row row;
  if (const Json* system = FindAny(json, {"system", "system_prompt"}); system != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(std::string text, TextOf(*system, "system"));
    if (!text.empty()) row.messages.push_back({"system", std::move(text)});
  }
  if (const Json* turns = FindAny(json, {"messages", "conversations", "conversation"}); turns != nullptr) {
    TROUPE_RETURN_IF_ERROR(ParseTurns(*turns, row));
  } else if (const Json* text = FindAny(json, {"text"}); text != nullptr && FindAny(json, {"query", "prompt", "question", "instruction", "input", "problem"}) == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(row.text, TextOf(*text, "text"));
    row.is_text = true;
    return row;
  } else {
    if (const Json* history = FindAny(json, {"history"}); history != nullptr) TROUPE_RETURN_IF_ERROR(ParseHistory(*history, row));
    const Json* query = FindAny(json, {"query", "prompt", "instruction", "question", "problem", "input"});
    const Json* response = FindAny(json, {"response", "answer", "output", "targets", "target", "answer_key", "answers", "solution", "text", "completion", "content"});
    if (query == nullptr || response == nullptr) {
      return Wrong("has none of messages, query and response, instruction and output, question and answer, conversations, text");
    }
    TROUPE_ASSIGN_OR_RETURN(std::string question, TextOf(*query, "query"));
    if (const Json* input = FindAny(json, {"input"}); input != nullptr && FindAny(json, {"instruction"}) != nullptr) {
      TROUPE_ASSIGN_OR_RETURN(const std::string more, TextOf(*input, "input"));
      if (!more.empty()) question += "\n" + more;
    }
    TROUPE_ASSIGN_OR_RETURN(std::string answer, TextOf(*response, "response"));
    row.messages.push_back({"user", std::move(question)});
    row.messages.push_back({"assistant", std::move(answer)});
  }
  for (const Message& message : row.messages) {
    if (message.role == "assistant") return row;
  }
  return Wrong("has no assistant message");
}

}  // namespace

absl::StatusOr<Row> ParseRow(const std::string& line) {
  int depth = 0;
  for (char c : line) {
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (depth > kMaxDepth) return Wrong(absl::StrCat("is nested more than ", kMaxDepth, " deep"));
  }
  try {
    const Json json = Json::parse(line);
    if (!json.is_object()) return Wrong("is not a JSON object");
    return ParseObject(json);
  } catch (const Json::exception& e) {
    return Wrong(absl::StrCat("is not JSON: ", e.what()));
  }
}

}  // namespace troupe::engine
