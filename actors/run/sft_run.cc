#include "actors/run/sft_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "actors/options/option_parser.h"
#include "actors/report/loss_curve.h"
#include "actors/report/metrics_log.h"
#include "actors/report/progress.h"
#include "actors/report/run_directory.h"
#include "engine/data/describe.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace troupe::actors {
namespace fs = std::filesystem;

struct SftRun::State {
  State(SftOptions run_options, runtime::DeviceMesh run_mesh) : options(std::move(run_options)), mesh(std::move(run_mesh)) {}

  SftOptions options;
  runtime::DeviceMesh mesh;
  std::unique_ptr<runtime::Job> job;
  std::unique_ptr<RunDirectory> directory;
  std::unique_ptr<MetricsLog> metrics;
  Progress progress{StdoutProgress()};
  LossCurve curve{"loss"};
  absl::Time start = absl::Now();
  absl::Time last_step = absl::Now();
  int64_t total_steps = 0;
  double epoch = 0;
  std::deque<std::string> checkpoints;
  std::vector<LossSums> evaluations;
  std::vector<std::string> skipped;
};

SftRun::SftRun(std::unique_ptr<State> state) : state_(std::move(state)) {}
SftRun::~SftRun() = default;
const SftOptions& SftRun::options() const { return state_->options; }
runtime::Job& SftRun::job() const { return *state_->job; }
const runtime::DeviceMesh& SftRun::mesh() const { return state_->mesh; }
bool SftRun::interrupted() const { return state_->job->interrupted(); }

TrainerOptions SftRun::trainer_options() const {
  const SftOptions& o = state_->options;
  TrainerOptions t;
  t.model = o.model;
  t.random_weights = !fs::exists(o.model + "/model.safetensors") && !fs::exists(o.model + "/model.safetensors.index.json") && !o.lora();
  t.adapters = o.adapters.empty() ? "" : o.adapters[0];
  t.lora = o.lora();
  t.lora_rank = o.lora_rank;
  t.lora_alpha = o.lora_alpha;
  t.lora_dropout = o.lora_dropout;
  t.use_rslora = o.use_rslora;
  t.target_modules = o.target_modules;
  t.bf16 = o.torch_dtype == "bfloat16";
  t.gradient_checkpointing = o.gradient_checkpointing;
  t.num_threads = o.num_threads;
  t.seed = static_cast<uint64_t>(o.seed);
  t.adam_beta1 = o.adam_beta1;
  t.adam_beta2 = o.adam_beta2;
  t.adam_epsilon = o.adam_epsilon;
  t.weight_decay = o.weight_decay;
  t.max_grad_norm = o.max_grad_norm;
  return t;
}

BatchLoaderOptions SftRun::loader_options() const {
  const SftOptions& o = state_->options;
  BatchLoaderOptions loader;
  loader.global_batch_size = GlobalBatchSize(o, state_->mesh.data_world_size());
  loader.num_micro_batches = loader.global_batch_size / o.per_device_train_batch_size;
  loader.num_epochs = o.num_train_epochs;
  loader.max_steps = o.max_steps;
  loader.shuffle = o.train_dataloader_shuffle;
  loader.seed = static_cast<uint64_t>(o.seed);
  return loader;
}

absl::StatusOr<engine::LrSchedule> SftRun::schedule(int64_t total_steps) const {
  const SftOptions& o = state_->options;
  return engine::LrSchedule::Create({.type = o.lr_scheduler_type,
                                     .learning_rate = o.learning_rate,
                                     .warmup_ratio = o.warmup_ratio,
                                     .min_lr = o.min_lr,
                                     .min_lr_rate = o.min_lr_rate,
                                     .total_steps = total_steps});
}

absl::Status SftRun::Begin(const TrainerGroup& trainer, const SftData& data, int64_t total_steps) {
  State& s = *state_;
  s.total_steps = total_steps;
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ModelInfo> infos, trainer.Info());
  std::string text = absl::StrFormat("model %s: %.2f M parameters, %.3f M of them train\n", s.options.model,
                                     static_cast<double>(infos[0].num_parameters) / 1e6, static_cast<double>(infos[0].num_trainable) / 1e6);
  for (const std::string& adapter : s.options.adapters) absl::StrAppend(&text, "starts from adapter ", adapter, "\n");
  absl::StrAppend(&text, "data ", absl::StrJoin(s.options.dataset, " "), ": ", data.train.size(), " rows to train on, ",
                  data.eval.has_value() ? data.eval->size() : 0, " held out\n");
  for (const engine::SkippedRow& row : data.train.skipped()) s.skipped.push_back(absl::StrCat(row.file, ":", row.line, ": ", row.why));
  if (data.train.num_deleted() > 0) {
    absl::StrAppend(&text, data.train.num_deleted(), " rows left out: longer than max_length, or without a token to learn\n");
  }
  absl::StrAppend(&text, "mesh ", s.mesh.Describe(), ", ", s.options.num_threads, " thread(s) a worker, ", infos[0].instruction_set, "\n");
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    const int r = static_cast<int>(rank);
    const runtime::NodeAddress& worker = s.job->workers()[rank];
    absl::StrAppendFormat(&text, "  trainer[%d]  dp %d fsdp %d  host %s  pid %d  shards %.1f MiB\n", r, s.mesh.coordinate("dp", r),
                          s.mesh.coordinate("fsdp", r), worker.host.empty() ? "local" : worker.host, worker.pid,
                          static_cast<double>(infos[rank].shard_bytes) / (1 << 20));
  }
  absl::StrAppend(&text, engine::DescribeSample(data.train.Get(0), *data.tokenizer), "\n");
  absl::StrAppend(&text, "results in ", s.directory->path(), "\n");
  s.progress.Print(text);
  s.progress.Begin(0, total_steps);
  s.last_step = absl::Now();
  return absl::OkStatus();
}

absl::Status CheckFinite(const GlobalBatch& batch, const LossSums& loss) {
  if (std::isfinite(loss.loss_sum)) return absl::OkStatus();
  std::vector<int64_t> rows;
  for (const engine::Sample& sample : batch.samples) rows.push_back(sample.index);
  return absl::InternalError(absl::StrCat("step ", batch.step, ": loss is ", loss.loss(), " on rows ", absl::StrJoin(rows, ", "),
                                          " of the dataset; weights were not changed by this step; try a smaller --learning_rate"));
}

absl::Status SftRun::LogStep(const GlobalBatch& batch, const LossSums& loss, const StepReport& step, double learning_rate) {
  State& s = *state_;
  const absl::Time now = absl::Now();
  StepMetrics m;
  m.step = batch.step;
  m.epoch = s.epoch = batch.epoch;
  m.loss = loss.loss();
  m.grad_norm = step.grad_norm;
  m.learning_rate = learning_rate;
  m.token_acc = loss.token_acc();
  m.num_tokens = batch.num_tokens;
  m.tokens_per_second = static_cast<double>(batch.num_tokens) / std::max(1e-9, absl::ToDoubleSeconds(now - s.last_step));
  m.memory_gib = step.memory_gib;
  m.elapsed_s = absl::ToDoubleSeconds(now - s.start);
  m.state_hash = absl::StrFormat("%016x", step.state_hash);
  s.last_step = now;
  s.curve.AddTrain(static_cast<double>(m.step), m.loss);
  if (batch.step % s.options.logging_steps == 0 || batch.step == 1) TROUPE_RETURN_IF_ERROR(s.metrics->Append(m));
  s.progress.Update({m.step, s.total_steps, m.loss, m.grad_norm, m.learning_rate, m.tokens_per_second, {m.memory_gib}});
  return absl::OkStatus();
}

absl::Status SftRun::Evaluate(const TrainerGroup& trainer, const SftData& data, int64_t step) {
  State& s = *state_;
  if (!data.eval.has_value()) return absl::OkStatus();
  const absl::Time begin = absl::Now();
  TROUPE_ASSIGN_OR_RETURN(const LossSums sums, trainer.Evaluate(*data.eval));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  EvalMetrics m{step, s.epoch, sums.loss(), sums.token_acc(), sums.num_targets, seconds, static_cast<double>(data.eval->size()) / std::max(1e-9, seconds)};
  s.evaluations.push_back(sums);
  s.curve.AddEval(static_cast<double>(step), m.eval_loss);
  s.last_step = absl::Now();
  s.progress.Print(absl::StrFormat("step %d: eval_loss %.4f, eval_token_acc %.4f on %d held-out rows", step, m.eval_loss, m.eval_token_acc,
                                   data.eval->size()));
  return s.metrics->Append(m);
}

bool SftRun::EvalDue(int64_t step) const {
  const SftOptions& o = state_->options;
  return step % (o.eval_steps > 0 ? o.eval_steps : o.save_steps) == 0 && step != state_->total_steps;
}

bool SftRun::SaveDue(int64_t step) const {
  return step % state_->options.save_steps == 0 || step == state_->total_steps || interrupted();
}

absl::Status SftRun::Save(const TrainerGroup& trainer, int64_t step) {
  State& s = *state_;
  const std::string path = s.directory->path(absl::StrCat("checkpoint-", step));
  if (absl::Status saved = trainer.Save(path); !saved.ok()) return Annotate(saved, absl::StrCat("save ", path));
  s.checkpoints.push_back(path);
  const auto limit = static_cast<size_t>(s.options.save_total_limit);
  while (limit > 0 && s.checkpoints.size() > limit) {
    std::error_code error;
    fs::remove_all(s.checkpoints.front(), error);
    if (error) LogWarning("cannot remove ", s.checkpoints.front(), ": ", error.message());
    s.checkpoints.pop_front();
  }
  s.last_step = absl::Now();
  return absl::OkStatus();
}

absl::Status SftRun::End() {
  State& s = *state_;
  s.progress.End();
  TROUPE_RETURN_IF_ERROR(s.curve.Write(*s.directory));
  std::string text;
  if (s.evaluations.size() >= 2) {
    const LossSums& before = s.evaluations.front();
    const LossSums& after = s.evaluations.back();
    absl::StrAppendFormat(&text, "held out: eval_loss %.4f -> %.4f, token accuracy %.1f %% -> %.1f %%\n", before.loss(), after.loss(),
                          100 * before.token_acc(), 100 * after.token_acc());
  }
  if (!s.skipped.empty()) {
    absl::StrAppend(&text, s.skipped.size(), " rows of the dataset could not be read and were skipped:\n");
    for (size_t i = 0; i < std::min<size_t>(10, s.skipped.size()); ++i) absl::StrAppend(&text, "  ", s.skipped[i], "\n");
  }
  absl::StrAppend(&text, "results in ", s.directory->path(), ": logging.jsonl, loss_curve.svg");
  if (!s.checkpoints.empty()) {
    const std::string last = fs::path(s.checkpoints.back()).filename().string();
    absl::StrAppend(&text, ", ", last, "\n");
    absl::StrAppend(&text, s.options.lora() ? "use it: score --model " + s.options.model + " --adapters " + s.checkpoints.back() + " --dataset FILE\n"
                                            : "use it: score --model " + s.checkpoints.back() + " --dataset FILE\n");
  } else {
    absl::StrAppend(&text, "\n");
  }
  s.progress.Print(text);
  return absl::OkStatus();
}

namespace {

absl::Status UseShippedFiles(SftOptions& options) {
  if (options.model.empty()) {
    TROUPE_ASSIGN_OR_RETURN(options.model, ShippedPath("models/troupe-tiny"));
  }
  if (options.dataset.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const std::string train, ShippedPath("data/arithmetic/train.jsonl"));
    TROUPE_ASSIGN_OR_RETURN(const std::string eval, ShippedPath("data/arithmetic/eval.jsonl"));
    options.dataset = {train};
    if (options.val_dataset.empty()) options.val_dataset = {eval};
  }
  if (options.output_dir.empty()) {
    options.output_dir = absl::StrCat("output/", fs::path(options.model).lexically_normal().filename().string());
  }
  return absl::OkStatus();
}

}  // namespace

int RunSft(int argc, char** argv, const std::string& name, const std::string& summary, const SftOptions& defaults,
           const std::function<absl::Status(SftRun&)>& recipe) {
  runtime::Job::RunWorkerIfAsked();
  SftOptions options = defaults;
  OptionParser parser(name, summary);
  DescribeSftOptions(&parser, &options);
  parser.ParseOrExit(argc, argv);
  const auto fail = [&](const absl::Status& status, int code) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
    return code;
  };
  absl::StatusOr<runtime::DeviceMesh> mesh = runtime::DeviceMesh::Parse(options.mesh.empty() ? "1x1" : options.mesh);
  if (!mesh.ok()) return fail(mesh.status(), 2);
  if (absl::Status status = UseShippedFiles(options); !status.ok()) return fail(status, 2);
  if (absl::Status status = ResolveSftOptions(&options, mesh->data_world_size()); !status.ok()) return fail(status, 2);

  SftRun run(std::make_unique<SftRun::State>(options, *mesh));
  SftRun::State& state = *run.state_;
  const absl::Status status = [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(state.job, runtime::Job::Start({.num_workers = mesh->size(), .deterministic = options.deterministic}));
    TROUPE_ASSIGN_OR_RETURN(RunDirectory directory, RunDirectory::Create({options.output_dir, options.add_version}));
    state.directory = std::make_unique<RunDirectory>(std::move(directory));
    TROUPE_RETURN_IF_ERROR(state.directory->Write("args.json", parser.ToJson()));
    TROUPE_ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(state.directory->path("logging.jsonl")));
    state.metrics = std::make_unique<MetricsLog>(std::move(metrics));
    return recipe(run);
  }();
  state.progress.End();
  const bool interrupted = state.job != nullptr && state.job->interrupted();
  if (!status.ok()) fail(status, 1);
  if (interrupted && !state.checkpoints.empty()) {
    std::fprintf(stderr, "%s: interrupted; saved %s\n", name.c_str(), state.checkpoints.back().c_str());
  }
  if (state.job != nullptr) {
    if (absl::Status ended = state.job->Shutdown(); !ended.ok()) LogWarning("shutdown: ", std::string(ended.message()));
  }
  return interrupted ? 130 : status.ok() ? 0 : 1;
}

}  // namespace troupe::actors
