#include "engine/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "engine/io/atomic_directory.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/utf8.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

using Json = nlohmann::ordered_json;

/// GPT-2's alphabet: every byte as a printable character.
struct ByteAlphabet {
  ByteAlphabet() {
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const uint32_t c = printable ? b : next++;
      AppendUtf8(c, &text[b]);
      byte_of[text[b]] = static_cast<uint8_t>(b);
    }
  }
  std::array<std::string, 256> text;
  std::unordered_map<std::string, uint8_t> byte_of;
};

const ByteAlphabet& Alphabet() {
  static const auto* alphabet = new ByteAlphabet;
  return *alphabet;
}

/// The bytes that a token of the vocabulary stands for, or its text when it is not written in the alphabet.
std::string BytesOfToken(const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const auto first = static_cast<uint8_t>(token[at]);
    const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const auto found = Alphabet().byte_of.find(token.substr(at, length));
    if (found == Alphabet().byte_of.end()) return token;
    bytes += static_cast<char>(found->second);
    at += length;
  }
  return bytes;
}

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false, lstrip = false, rstrip = false, single_word = false, normalized = false;
};

uint64_t PairKey(int32_t left, int32_t right) { return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right); }

}  // namespace

struct Tokenizer::State {
  SplitPattern pattern = SplitPattern::kQwen2;
  bool nfc = false;
  bool add_prefix_space = false;
  bool ignore_merges = false;
  std::unordered_map<std::string, int32_t> vocab;
  std::vector<std::string> tokens;   // by id, as in the file
  std::vector<std::string> bytes;    // by id, what it stands for
  std::array<int32_t, 256> byte_ids{};
  struct Merge {
    int32_t rank, result;
  };
  std::unordered_map<uint64_t, Merge> merges;
  std::vector<AddedToken> added;
  std::vector<char> is_special;  // by id
  std::vector<int32_t> prefix_ids;  // what the post-processor puts in front
  std::vector<int32_t> suffix_ids;
  std::optional<int32_t> bos, eos, pad;
  std::string chat_template;

  absl::Status Parse(const Json& json);
  absl::Status ParsePreTokenizer(const Json& json);
  absl::Status ParsePostProcessor(const Json& json);
  void ParseConfig(const Json& config);
  void EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const;
  void EncodeText(absl::string_view text, std::vector<int32_t>* ids) const;
};

absl::Status Tokenizer::State::ParsePreTokenizer(const Json& json) {
  std::vector<Json> steps;
  if (json.is_object() && json.value("type", "") == "Sequence") {
    for (const Json& step : json.at("pretokenizers")) steps.push_back(step);
  } else {
    steps.push_back(json);
  }
  bool has_pattern = false, has_bytes = false;
  for (const Json& step : steps) {
    const std::string type = step.is_object() ? step.value("type", "") : "";
    if (type == "Split") {
      const Json& regex = step.at("pattern");
      const std::string text = regex.contains("Regex") ? regex["Regex"].get<std::string>() : regex.dump();
      const std::optional<SplitPattern> known = RecognisePattern(text);
      if (!known.has_value() || step.value("behavior", "") != "Isolated" || step.value("invert", false)) {
        return absl::UnimplementedError(absl::StrCat("pre_tokenizer splits by ", text, ", which is none of GPT-2's, Llama 3's and Qwen2's"));
      }
      pattern = *known;
      has_pattern = true;
    } else if (type == "ByteLevel") {
      has_bytes = true;
      add_prefix_space = step.value("add_prefix_space", false);
      if (step.value("use_regex", true)) {
        if (has_pattern) return absl::UnimplementedError("pre_tokenizer splits twice");
        pattern = SplitPattern::kGpt2;
        has_pattern = true;
      }
    } else {
      return absl::UnimplementedError(absl::StrCat("pre_tokenizer of type \"", type, "\" is not supported"));
    }
  }
  if (!has_pattern || !has_bytes) return absl::UnimplementedError("pre_tokenizer is not byte-level with a pattern we know");
  return absl::OkStatus();
}

absl::Status Tokenizer::State::ParsePostProcessor(const Json& json) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = json.value("type", "");
  if (type == "ByteLevel") return absl::OkStatus();  // offsets only
  if (type == "Sequence") {
    for (const Json& step : json.at("processors")) TROUPE_RETURN_IF_ERROR(ParsePostProcessor(step));
    return absl::OkStatus();
  }
  if (type != "TemplateProcessing") return absl::UnimplementedError(absl::StrCat("post_processor of type \"", type, "\" is not supported"));
  bool before = true;
  for (const Json& piece : json.at("single")) {
    if (piece.contains("Sequence")) {
      before = false;
      continue;
    }
    const auto name = piece.at("SpecialToken").at("id").get<std::string>();
    for (const Json& id : json.at("special_tokens").at(name).at("ids")) (before ? prefix_ids : suffix_ids).push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::State::Parse(const Json& json) {
  const Json& model = json.at("model");
  if (model.value("type", "BPE") != "BPE") return absl::UnimplementedError("model of type " + model["type"].dump() + " is not supported");
  if (model.value("byte_fallback", false)) return absl::UnimplementedError("byte_fallback is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.contains(key) && model[key].is_string() && !model[key].get<std::string>().empty()) {
      return absl::UnimplementedError(absl::StrCat(key, " is not supported"));
    }
  }
  ignore_merges = model.value("ignore_merges", false);

  const auto normalizer = json.find("normalizer");
  if (normalizer != json.end() && !normalizer->is_null()) {
    if (normalizer->value("type", "") != "NFC") return absl::UnimplementedError("normalizer " + normalizer->dump() + " is not supported");
    nfc = true;
  }
  TROUPE_RETURN_IF_ERROR(ParsePreTokenizer(json.at("pre_tokenizer")));
  if (json.contains("post_processor")) TROUPE_RETURN_IF_ERROR(ParsePostProcessor(json["post_processor"]));

  constexpr int64_t kMaxId = 10'000'000;
  const auto put = [this](const std::string& token, int64_t id) {
    if (id < 0 || id > kMaxId) return false;
    const auto index = static_cast<size_t>(id);
    if (tokens.size() <= index) tokens.resize(index + 1);
    tokens[index] = token;
    vocab[token] = static_cast<int32_t>(id);
    return true;
  };
  for (const auto& [token, id] : model.at("vocab").items()) {
    if (!put(token, id.get<int64_t>())) return absl::InvalidArgumentError(absl::StrCat("vocab: token ", token, " has id ", id.dump()));
  }
  for (uint32_t b = 0; b < 256; ++b) {
    const auto found = vocab.find(Alphabet().text[b]);
    byte_ids[b] = found == vocab.end() ? -1 : found->second;
  }
  int32_t rank = 0;
  for (const Json& merge : model.at("merges")) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      if (space == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("merge ", rank, " is \"", text, "\", not two tokens"));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
    const auto l = vocab.find(left), r = vocab.find(right), both = vocab.find(left + right);
    if (l == vocab.end() || r == vocab.end() || both == vocab.end()) {
      return absl::InvalidArgumentError(absl::StrCat("merge ", rank, " of \"", left, "\" and \"", right, "\" is not in the vocabulary"));
    }
    merges.emplace(PairKey(l->second, r->second), Merge{rank++, both->second});
  }
  if (json.contains("added_tokens") && json["added_tokens"].is_array()) {
    for (const Json& token : json["added_tokens"]) {
      AddedToken a;
      a.id = token.at("id").get<int32_t>();
      a.content = token.at("content").get<std::string>();
      a.special = token.value("special", false);
      a.lstrip = token.value("lstrip", false);
      a.rstrip = token.value("rstrip", false);
      a.single_word = token.value("single_word", false);
      a.normalized = token.value("normalized", false);
      if (a.content.empty() || !put(a.content, a.id)) return absl::InvalidArgumentError("added_tokens: " + token.dump());
      if (a.single_word) return absl::UnimplementedError(absl::StrCat("added token ", a.content, ": single_word is not supported"));
      added.push_back(a);
    }
  }
  is_special.resize(tokens.size());
  for (const std::string& token : tokens) bytes.push_back(BytesOfToken(token));
  for (const AddedToken& a : added) {
    is_special[static_cast<size_t>(a.id)] = a.special ? 1 : 0;
    bytes[static_cast<size_t>(a.id)] = a.content;
  }
  return absl::OkStatus();
}

void Tokenizer::State::ParseConfig(const Json& config) {
  const auto token = [&](const char* key) -> std::optional<int32_t> {
    if (!config.contains(key)) return std::nullopt;
    const Json& value = config[key];
    const std::string text = value.is_string() ? value.get<std::string>() : value.is_object() ? value.value("content", "") : "";
    const auto found = vocab.find(text);
    return found == vocab.end() ? std::nullopt : std::optional<int32_t>(found->second);
  };
  bos = token("bos_token");
  eos = token("eos_token");
  pad = token("pad_token");
  if (!config.contains("chat_template")) return;
  const Json& chat = config["chat_template"];
  if (chat.is_string()) chat_template = chat.get<std::string>();
  if (chat.is_array()) {
    for (const Json& named : chat) {
      if (named.value("name", "") == "default") chat_template = named.value("template", "");
    }
  }
}

void Tokenizer::State::EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const {
  if (ignore_merges) {
    std::string token;
    for (char c : word) token += Alphabet().text[static_cast<uint8_t>(c)];
    if (const auto found = vocab.find(token); found != vocab.end()) {
      ids->push_back(found->second);
      return;
    }
  }
  std::vector<int32_t> symbols;
  for (char c : word) {
    if (const int32_t id = byte_ids[static_cast<uint8_t>(c)]; id >= 0) symbols.push_back(id);
  }
  // Lowest rank first, the leftmost of equals: words are short, so a scan beats a heap.
  while (symbols.size() > 1) {
    int32_t best_rank = std::numeric_limits<int32_t>::max(), result = 0;
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges.find(PairKey(symbols[i], symbols[i + 1]));
      if (found != merges.end() && found->second.rank < best_rank) {
        best_rank = found->second.rank;
        result = found->second.result;
        best = i;
      }
    }
    if (best_rank == std::numeric_limits<int32_t>::max()) break;
    symbols[best] = result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

void Tokenizer::State::EncodeText(absl::string_view text, std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  std::string normal = nfc ? Nfc(std::string(text)) : std::string(text);
  if (add_prefix_space && normal[0] != ' ') normal.insert(normal.begin(), ' ');
  for (absl::string_view piece : SplitText(normal, pattern)) EncodeWord(piece, ids);
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(const std::string& tokenizer_json,
                                                                     const std::string& tokenizer_config_json) {
  auto state = std::make_unique<State>();
  try {
    TROUPE_RETURN_IF_ERROR(state->Parse(Json::parse(tokenizer_json)));
    if (!tokenizer_config_json.empty()) state->ParseConfig(Json::parse(tokenizer_config_json));
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(e.what());
  }
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(state)));
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& model_dir) {
  const std::string path = model_dir + "/tokenizer.json";
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const absl::StatusOr<std::string> config = ReadFile(model_dir + "/tokenizer_config.json");
  absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = FromJson(text, config.ok() ? *config : "");
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  if (const absl::StatusOr<std::string> jinja = ReadFile(model_dir + "/chat_template.jinja"); jinja.ok()) {
    (*tokenizer)->state_->chat_template = *jinja;
  }
  return tokenizer;
}

std::vector<int32_t> Tokenizer::Encode(absl::string_view input, const EncodeOptions& options) const {
  const State& s = *state_;
  const std::string text = ReplaceInvalidUtf8(input);
  std::vector<int32_t> ids;
  if (options.add_special_tokens) ids = s.prefix_ids;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken& a : s.added) {
      if (text.compare(at, a.content.size(), a.content) == 0 && (longest == nullptr || a.content.size() > longest->content.size())) longest = &a;
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    size_t end_of_text = at, after = at + longest->content.size();
    const auto is_space = [&](size_t i) { return text[i] == ' ' || (text[i] >= 9 && text[i] <= 13); };
    while (longest->lstrip && end_of_text > begin && is_space(end_of_text - 1)) --end_of_text;
    while (longest->rstrip && after < text.size() && is_space(after)) ++after;
    s.EncodeText(absl::string_view(text).substr(begin, end_of_text - begin), &ids);
    ids.push_back(longest->id);
    begin = at = after;
  }
  s.EncodeText(absl::string_view(text).substr(begin), &ids);
  if (options.add_special_tokens) ids.insert(ids.end(), s.suffix_ids.begin(), s.suffix_ids.end());
  return ids;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, const DecodeOptions& options) const {
  std::string bytes;
  for (int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= state_->bytes.size()) continue;
    if (options.skip_special_tokens && state_->is_special[static_cast<size_t>(id)] != 0) continue;
    bytes += state_->bytes[static_cast<size_t>(id)];
  }
  return ReplaceInvalidUtf8(bytes);
}

absl::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= state_->bytes.size()) return {};
  return state_->bytes[static_cast<size_t>(id)];
}

std::string Tokenizer::Normalise(absl::string_view text) const {
  std::string valid = ReplaceInvalidUtf8(text);
  return state_->nfc ? Nfc(valid) : valid;
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(state_->tokens.size()); }
std::optional<int32_t> Tokenizer::TokenToId(const std::string& token) const {
  const auto found = state_->vocab.find(token);
  return found == state_->vocab.end() ? std::nullopt : std::optional<int32_t>(found->second);
}
std::optional<int32_t> Tokenizer::bos_id() const { return state_->bos; }
std::optional<int32_t> Tokenizer::eos_id() const { return state_->eos; }
std::optional<int32_t> Tokenizer::pad_id() const { return state_->pad; }
bool Tokenizer::adds_bos() const { return state_->bos.has_value() && !state_->prefix_ids.empty() && state_->prefix_ids[0] == *state_->bos; }
const std::string& Tokenizer::chat_template() const { return state_->chat_template; }

}  // namespace troupe::engine
