#include "engine/tokenizer/pre_tokenizer.h"

#include <utf8proc.h>

#include <cstdint>

namespace troupe::engine {
namespace {

constexpr char kLlama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr char kQwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr char kGpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

bool IsLetter(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsNumber(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
bool IsSpace(int32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
bool IsNewline(int32_t c) { return c == '\r' || c == '\n'; }
bool IsOther(int32_t c) { return !IsSpace(c) && !IsLetter(c) && !IsNumber(c); }

/// Walks over code points; -1 at the end.
class Scanner {
 public:
  Scanner(absl::string_view text, SplitPattern pattern) : text_(text), pattern_(pattern) {}

  /// The end of the piece that begins at `begin`: the first alternative of the pattern that matches, as a backtracking engine does.
  size_t PieceEnd(size_t begin) const {
    if (size_t end = Contraction(begin); end > begin) return end;
    if (pattern_ == SplitPattern::kGpt2) {
      const size_t start = At(begin) == ' ' ? begin + 1 : begin;
      for (auto kind : {IsLetter, IsNumber, IsOther}) {
        const size_t end = Run(start, kind);
        if (end > start) return end;
      }
      return Spaces(begin);
    }
    // [^\r\n\p{L}\p{N}]?\p{L}+
    const int32_t first = At(begin);
    if (!IsNewline(first) && !IsLetter(first) && !IsNumber(first)) {
      const size_t start = Next(begin), end = Run(start, IsLetter);
      if (end > start) return end;
    }
    if (const size_t end = Run(begin, IsLetter); end > begin) return end;
    if (const size_t end = Digits(begin, pattern_ == SplitPattern::kLlama3 ? 3 : 1); end > begin) return end;
    // ' '?[^\s\p{L}\p{N}]+[\r\n]*
    const size_t start = first == ' ' ? begin + 1 : begin;
    if (const size_t end = Run(start, IsOther); end > start) return Run(end, IsNewline);
    // \s*[\r\n]+ : up to the last newline of the run of spaces
    const size_t run = Run(begin, IsSpace);
    size_t after_newline = begin;
    for (size_t i = begin; i < run; i = Next(i)) {
      if (IsNewline(At(i))) after_newline = Next(i);
    }
    if (after_newline > begin) return after_newline;
    return Spaces(begin);
  }

 private:
  /// \s+(?!\S)|\s+ : a run of spaces leaves its last one to the word that follows.
  size_t Spaces(size_t begin) const {
    const size_t run = Run(begin, IsSpace);
    if (run == begin) return Next(begin);
    if (run == text_.size()) return run;
    size_t last = begin;
    for (size_t i = begin; i < run; i = Next(i)) last = i;
    return last > begin ? last : run;
  }

  size_t Contraction(size_t begin) const {
    if (At(begin) != '\'') return begin;
    const bool any_case = pattern_ != SplitPattern::kGpt2;
    const auto letter = [&](size_t at) {
      const int32_t c = At(at);
      if (any_case && c == 0x17f) return int32_t{'s'};  // the long s folds to s
      return any_case && c >= 'A' && c <= 'Z' ? c + 32 : c;
    };
    const int32_t a = letter(begin + 1);
    if (a == 's' || a == 't') return Next(begin + 1);
    const int32_t b = a < 0 ? -1 : letter(Next(begin + 1));
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e')) return Next(Next(begin + 1));
    if (a == 'm') return begin + 2;
    if (a == 'l' && b == 'l') return begin + 3;
    if (a == 'd') return begin + 2;
    return begin;
  }

  size_t Digits(size_t begin, int most) const {
    size_t at = begin;
    for (int i = 0; i < most && at < text_.size() && IsNumber(At(at)); ++i) at = Next(at);
    return at;
  }

  template <typename Kind>
  size_t Run(size_t begin, Kind kind) const {
    size_t at = begin;
    while (at < text_.size() && kind(At(at))) at = Next(at);
    return at;
  }

  int32_t At(size_t at) const {
    if (at >= text_.size()) return -1;
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte < 0x80) return byte;
    utf8proc_int32_t c = -1;
    utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text_.data()) + at, static_cast<utf8proc_ssize_t>(text_.size() - at), &c);
    return c;
  }
  size_t Next(size_t at) const {
    if (at >= text_.size()) return at;
    const auto byte = static_cast<uint8_t>(text_[at]);
    const size_t length = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return std::min(text_.size(), at + length);
  }

  absl::string_view text_;
  SplitPattern pattern_;
};

}  // namespace

std::optional<SplitPattern> RecognisePattern(const std::string& regex) {
  for (SplitPattern pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    if (regex == PatternText(pattern)) return pattern;
  }
  return std::nullopt;
}

const char* PatternText(SplitPattern pattern) {
  return pattern == SplitPattern::kGpt2 ? kGpt2 : pattern == SplitPattern::kLlama3 ? kLlama3 : kQwen2;
}

std::vector<absl::string_view> SplitText(absl::string_view text, SplitPattern pattern) {
  const Scanner scanner(text, pattern);
  std::vector<absl::string_view> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t end = scanner.PieceEnd(at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

}  // namespace troupe::engine
