/// Byte-level BPE as Hugging Face's tokenizers does it, from a model's tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace troupe::engine {

struct EncodeOptions {
  bool add_special_tokens = true;  ///< what the post-processor adds: BOS
};

struct DecodeOptions {
  bool skip_special_tokens = false;
};

/// Text -> NFC -> pieces (GPT-2's, Llama 3's or Qwen2's pattern) -> bytes -> merges by rank.
///
/// Threads  thread-safe
class Tokenizer {
 public:
  /// Reads DIR/tokenizer.json, and tokenizer_config.json and chat_template.jinja where they are.
  ///
  /// Errors  NOT_FOUND; INVALID_ARGUMENT naming file and key; UNIMPLEMENTED naming the model, normalizer, pattern or
  ///         post-processor that we do not have
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& model_dir);
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> FromJson(const std::string& tokenizer_json,
                                                                   const std::string& tokenizer_config_json);
  ~Tokenizer();

  /// Bytes that are not UTF-8 are replaced by U+FFFD first, as Rust's from_utf8_lossy does.
  std::vector<int32_t> Encode(absl::string_view text, const EncodeOptions& options) const;
  /// Ids beyond the vocabulary are left out; bytes that are not UTF-8 become U+FFFD.
  std::string Decode(absl::Span<const int32_t> ids, const DecodeOptions& options) const;

  /// The bytes that a token stands for; those of Encode's tokens together are the normalised text.
  absl::string_view TokenBytes(int32_t id) const;
  /// What Encode makes of the text before it looks for tokens.
  std::string Normalise(absl::string_view text) const;
  int64_t vocab_size() const;
  std::optional<int32_t> TokenToId(const std::string& token) const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  bool adds_bos() const;
  /// Empty when the model has none.
  const std::string& chat_template() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace troupe::engine
