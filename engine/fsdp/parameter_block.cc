#include "engine/fsdp/parameter_block.h"

#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

absl::Span<const std::byte> Bytes(const Tensor& tensor) { return {tensor.bytes(), tensor.num_bytes()}; }
absl::Span<std::byte> MutableBytes(const Tensor& tensor) { return {tensor.bytes(), tensor.num_bytes()}; }

}  // namespace

ParameterBlock::ParameterBlock(std::string name, std::vector<ParameterSpec> specs, DType storage, Communicator& fsdp, Device& device)
    : name_(std::move(name)), storage_(storage), fsdp_(&fsdp), device_(&device) {
  trainable_.trainable = true;
  for (ParameterSpec& spec : specs) {
    FlatParameters& flat = spec.trainable ? trainable_ : frozen_;
    parameters_.push_back(std::make_unique<Parameter>(std::move(spec)));
    flat.parameters.push_back(parameters_.back().get());
    flat.offsets.push_back(flat.size);
    flat.size += RoundUp(NumElements(parameters_.back()->spec().shape), 16);
  }
  for (FlatParameters* flat : {&frozen_, &trainable_}) {
    flat->shard_size = RoundUp(RoundUp(flat->size, fsdp.size()) / fsdp.size(), kShardChunk);
    if (flat->size == 0) flat->shard_size = 0;
    flat->shard = Tensor::Zeros({flat->shard_size}, flat->trainable ? DType::kF32 : storage);
    if (flat->trainable) flat->shard_grad = Tensor::Zeros({flat->shard_size});
  }
}

Parameter& ParameterBlock::Find(const std::string& name) {
  for (const std::unique_ptr<Parameter>& parameter : parameters_) {
    if (parameter->spec().name == name) return *parameter;
  }
  TROUPE_CHECK(false) << name_ << " has no parameter " << name;
  return *parameters_.front();
}

std::vector<Parameter*> ParameterBlock::parameters() {
  std::vector<Parameter*> all;
  for (const std::unique_ptr<Parameter>& parameter : parameters_) all.push_back(parameter.get());
  return all;
}

absl::Status ParameterBlock::GatherFlat(FlatParameters& flat) {
  if (flat.size == 0) return absl::OkStatus();
  const int64_t total = flat.shard_size * fsdp_->size();
  if (storage_ == DType::kF32 && fsdp_->size() == 1) {
    flat.full = flat.shard;
  } else if (storage_ == DType::kF32) {
    flat.full = Tensor::Empty({total});
    TROUPE_RETURN_IF_ERROR(fsdp_->AllGather(Bytes(flat.shard), MutableBytes(flat.full)));
  } else {
    Tensor sent = flat.shard;
    if (flat.trainable) {
      sent = Tensor::Empty({flat.shard_size}, DType::kBF16);
      device_->ToBf16({flat.shard.f32(), static_cast<size_t>(flat.shard_size)}, {sent.bf16(), static_cast<size_t>(flat.shard_size)});
    }
    Tensor received = sent;
    if (fsdp_->size() > 1) {
      received = Tensor::Empty({total}, DType::kBF16);
      TROUPE_RETURN_IF_ERROR(fsdp_->AllGather(Bytes(sent), MutableBytes(received)));
    }
    flat.full = Tensor::Empty({total});
    device_->FromBf16({received.bf16(), static_cast<size_t>(total)}, {flat.full.f32(), static_cast<size_t>(total)});
  }
  for (size_t i = 0; i < flat.parameters.size(); ++i) {
    flat.parameters[i]->value_ = flat.full.View(flat.offsets[i], flat.parameters[i]->spec().shape);
  }
  return absl::OkStatus();
}

absl::Status ParameterBlock::Gather(bool with_grad) {
  if (gathered_++ == 0) {
    TROUPE_RETURN_IF_ERROR(GatherFlat(frozen_));
    TROUPE_RETURN_IF_ERROR(GatherFlat(trainable_));
  }
  if (with_grad && trainable_.size > 0 && !trainable_.full_grad.defined()) {
    trainable_.full_grad = Tensor::Zeros({trainable_.shard_size * fsdp_->size()});
    for (size_t i = 0; i < trainable_.parameters.size(); ++i) {
      Parameter& parameter = *trainable_.parameters[i];
      parameter.grad_ = trainable_.full_grad.View(trainable_.offsets[i], parameter.spec().shape);
    }
  }
  return absl::OkStatus();
}

void ParameterBlock::Release() {
  TROUPE_CHECK_GT(gathered_, 0);
  if (--gathered_ > 0) return;
  for (FlatParameters* flat : {&frozen_, &trainable_}) {
    // An unsharded f32 block is its own full buffer: what was made from it stays good.
    if (flat->full.defined() && flat->shard.dtype() == DType::kF32 && flat->full.bytes() == flat->shard.bytes()) continue;
    for (Parameter* parameter : flat->parameters) {
      parameter->value_ = {};
      parameter->transposed_ = {};
    }
    flat->full = {};
  }
}

absl::Status ParameterBlock::ReduceGrad() {
  if (trainable_.size == 0) return absl::OkStatus();
  TROUPE_CHECK(trainable_.full_grad.defined()) << name_;
  const auto span = [](const Tensor& t) { return absl::Span<float>(t.f32(), static_cast<size_t>(t.size())); };
  TROUPE_RETURN_IF_ERROR(fsdp_->ReduceScatter(span(trainable_.full_grad), span(trainable_.shard_grad)));
  trainable_.full_grad = {};
  for (Parameter* parameter : trainable_.parameters) parameter->grad_ = {};
  return absl::OkStatus();
}

void ParameterBlock::WeightsChanged() {
  TROUPE_CHECK_EQ(gathered_, 0);
  for (Parameter* parameter : trainable_.parameters) parameter->transposed_ = {};
}

}  // namespace troupe::engine
