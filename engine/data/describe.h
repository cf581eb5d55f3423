/// Shows a sample to a person.
#pragma once

#include <string>

#include "engine/data/sample.h"
#include "engine/tokenizer/tokenizer.h"

namespace troupe::engine {

/// `[INPUT]` the text, `[LABELS]` the same with what the loss leaves out as `[-100 * n]`, as ms-swift prints it.
std::string DescribeSample(const Sample& sample, const Tokenizer& tokenizer);

}  // namespace troupe::engine
