#include "engine/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "absl/strings/numbers.h"
#include "engine/data/shuffle.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

/// The whole text is tokenised at once, as apply_chat_template does; a token is a target when a byte of it lies in a target segment.
Sample EncodeConversation(const std::vector<ChatSegment>& segments, const Tokenizer& tokenizer) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  Sample sample;
  sample.token_ids = tokenizer.Encode(text, {.add_special_tokens = false});
  std::vector<std::pair<size_t, bool>> ends;  // where each segment ends in the normalised text
  size_t end = 0;
  for (const ChatSegment& segment : segments) {
    end += tokenizer.Normalise(segment.text).size();
    ends.emplace_back(end, segment.target);
  }
  size_t at = 0, segment = 0;
  for (int32_t id : sample.token_ids) {
    const size_t next = at + tokenizer.TokenBytes(id).size();
    while (segment < ends.size() && ends[segment].first <= at) ++segment;
    bool target = false;
    for (size_t s = segment; s < ends.size() && (s == segment || ends[s - 1].first < next); ++s) target = target || ends[s].second;
    sample.loss_mask.push_back(target ? 1 : 0);
    at = next;
  }
  return sample;
}

Sample EncodeText(const std::string& text, const Tokenizer& tokenizer) {
  Sample sample;
  sample.token_ids = tokenizer.Encode(text, {.add_special_tokens = false});
  if (tokenizer.adds_bos()) sample.token_ids.insert(sample.token_ids.begin(), *tokenizer.bos_id());
  if (tokenizer.eos_id().has_value()) sample.token_ids.push_back(*tokenizer.eos_id());
  sample.loss_mask.assign(sample.token_ids.size(), 1);
  return sample;
}

struct FileSpec {
  std::string path;
  int64_t rows = std::numeric_limits<int64_t>::max();
};

FileSpec ParseSpec(const std::string& spec) {
  const size_t hash = spec.rfind('#');
  int64_t rows = 0;
  if (hash != std::string::npos && absl::SimpleAtoi(spec.substr(hash + 1), &rows) && rows > 0) return {spec.substr(0, hash), rows};
  return {spec};
}

}  // namespace

absl::StatusOr<TruncationStrategy> ParseTruncationStrategy(const std::string& name) {
  if (name == "delete") return TruncationStrategy::kDelete;
  if (name == "left") return TruncationStrategy::kLeft;
  if (name == "right") return TruncationStrategy::kRight;
  if (name == "raise") return TruncationStrategy::kRaise;
  return absl::InvalidArgumentError(absl::StrCat("truncation_strategy \"", name, "\": there are delete, left, right and raise"));
}

absl::StatusOr<std::optional<Sample>> EncodeRow(const Row& row, const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                const DatasetOptions& options) {
  Sample sample = row.is_text ? EncodeText(row.text, tokenizer) : EncodeConversation(chat.Render(row.messages, {}), tokenizer);
  const auto length = static_cast<int64_t>(sample.token_ids.size());
  if (options.max_length > 0 && length > options.max_length) {
    const auto cut = static_cast<std::ptrdiff_t>(length - options.max_length);
    switch (options.truncation_strategy) {
      case TruncationStrategy::kDelete: return std::nullopt;
      case TruncationStrategy::kRaise:
        return absl::OutOfRangeError(absl::StrCat("has ", length, " tokens, max_length is ", options.max_length));
      case TruncationStrategy::kLeft:
        sample.token_ids.erase(sample.token_ids.begin(), sample.token_ids.begin() + cut);
        sample.loss_mask.erase(sample.loss_mask.begin(), sample.loss_mask.begin() + cut);
        break;
      case TruncationStrategy::kRight:
        sample.token_ids.resize(static_cast<size_t>(options.max_length));
        sample.loss_mask.resize(static_cast<size_t>(options.max_length));
        break;
    }
  }
  if (!sample.loss_mask.empty()) sample.loss_mask[0] = 0;
  if (std::find(sample.loss_mask.begin(), sample.loss_mask.end(), 1) == sample.loss_mask.end()) return std::nullopt;
  return sample;
}

absl::StatusOr<Dataset> Dataset::Load(const std::vector<std::string>& paths, const Tokenizer& tokenizer, const ChatTemplate& chat,
                                      const DatasetOptions& options) {
  Dataset dataset;
  for (const std::string& spec_text : paths) {
    const FileSpec spec = ParseSpec(spec_text);
    std::ifstream file(spec.path, std::ios::binary);
    if (!file) return absl::NotFoundError(absl::StrCat("dataset ", spec.path, " cannot be read"));
    std::string line;
    int64_t line_number = 0, rows = 0;
    while (rows < spec.rows && std::getline(file, line)) {
      ++line_number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      ++rows;
      const absl::StatusOr<Row> row = ParseRow(line);
      if (!row.ok()) {
        if (options.strict) return Annotate(row.status(), absl::StrCat(spec.path, ":", line_number));
        dataset.skipped_.push_back({spec.path, line_number, std::string(row.status().message())});
        continue;
      }
      absl::StatusOr<std::optional<Sample>> sample = EncodeRow(*row, tokenizer, chat, options);
      if (!sample.ok()) return Annotate(sample.status(), absl::StrCat(spec.path, ":", line_number));
      if (!sample->has_value()) {
        ++dataset.num_deleted_;
        continue;
      }
      (*sample)->index = static_cast<int64_t>(dataset.samples_.size());
      dataset.samples_.push_back(**std::move(sample));
    }
  }
  if (dataset.samples_.empty()) {
    std::string files;
    for (const std::string& path : paths) absl::StrAppend(&files, files.empty() ? "" : ", ", path);
    std::string why = absl::StrCat(dataset.skipped_.size(), " bad rows, ", dataset.num_deleted_, " too long or without a target");
    if (!dataset.skipped_.empty()) absl::StrAppend(&why, "; first: line ", dataset.skipped_[0].line, " ", dataset.skipped_[0].why);
    return absl::InvalidArgumentError(absl::StrCat("dataset ", files, " has no sample: ", why));
  }
  return dataset;
}

void Dataset::Shuffle(uint64_t seed) {
  std::vector<Sample> shuffled;
  shuffled.reserve(samples_.size());
  for (int64_t i : Permutation(samples_.size(), Philox(seed, RandomPurpose::kShuffle, ~uint64_t{0}))) {
    shuffled.push_back(std::move(samples_[static_cast<size_t>(i)]));
  }
  samples_ = std::move(shuffled);
}

absl::StatusOr<std::pair<Dataset, Dataset>> Dataset::Split(double ratio, uint64_t seed) const {
  const auto held_out = std::max<size_t>(1, static_cast<size_t>(std::lround(ratio * static_cast<double>(size()))));
  if (!(ratio > 0) || held_out >= size()) {
    return absl::InvalidArgumentError(absl::StrCat("split_dataset_ratio ", ratio, " of ", size(), " samples leaves none to train on"));
  }
  std::vector<char> is_held_out(size());
  const std::vector<int64_t> order = Permutation(size(), Philox(seed, RandomPurpose::kSplit));
  for (size_t i = 0; i < held_out; ++i) is_held_out[static_cast<size_t>(order[i])] = 1;
  std::pair<Dataset, Dataset> parts;
  for (size_t i = 0; i < size(); ++i) (is_held_out[i] != 0 ? parts.second : parts.first).samples_.push_back(samples_[i]);
  parts.first.skipped_ = skipped_;
  parts.first.num_deleted_ = num_deleted_;
  return parts;
}

}  // namespace troupe::engine
