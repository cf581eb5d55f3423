/// The weights that a decoder's files hold, without making the decoder.
#pragma once

#include <vector>

#include "engine/fsdp/parameter.h"
#include "engine/model/config.h"

namespace troupe::engine {

/// The base weights in the order of Decoder::blocks(): embedding, last norm, head unless it is tied, then layer after layer.
std::vector<ParameterSpec> DecoderWeights(const DecoderConfig& config);

}  // namespace troupe::engine
