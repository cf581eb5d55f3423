#include "engine/data/describe.h"

#include "absl/strings/str_cat.h"

namespace troupe::engine {

std::string DescribeSample(const Sample& sample, const Tokenizer& tokenizer) {
  std::string text = absl::StrCat("[INPUT] ", tokenizer.Decode(sample.token_ids, {}), "\n[LABELS] ");
  for (size_t begin = 0; begin < sample.token_ids.size();) {
    size_t end = begin;
    while (end < sample.token_ids.size() && sample.loss_mask[end] == sample.loss_mask[begin]) ++end;
    if (sample.loss_mask[begin] != 0) {
      absl::StrAppend(&text, tokenizer.Decode(absl::MakeConstSpan(sample.token_ids).subspan(begin, end - begin), {}));
    } else {
      absl::StrAppend(&text, "[-100 * ", end - begin, "]");
    }
    begin = end;
  }
  return text;
}

}  // namespace troupe::engine
