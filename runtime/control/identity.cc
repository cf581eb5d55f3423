#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "runtime/base/status.h"
#include "runtime/control/client.h"

namespace troupe::runtime {
namespace {

constexpr char kRole[] = "TROUPE_ROLE";
constexpr char kNode[] = "TROUPE_NODE";
constexpr char kIncarnation[] = "TROUPE_INCARNATION";
constexpr char kJobEpoch[] = "TROUPE_JOB_EPOCH";
constexpr char kRank[] = "TROUPE_RANK";
constexpr char kNumWorkers[] = "TROUPE_NUM_WORKERS";
constexpr char kMesh[] = "TROUPE_MESH";
constexpr char kCoordinator[] = "TROUPE_COORDINATOR";
constexpr char kEndpoint[] = "TROUPE_ENDPOINT";
constexpr char kHost[] = "TROUPE_HOST";
constexpr char kJobDir[] = "TROUPE_JOB_DIR";
constexpr const char* kAll[] = {kRole, kNode,        kIncarnation, kJobEpoch, kRank,  kNumWorkers,
                                kMesh, kCoordinator, kEndpoint,    kHost,     kJobDir};
constexpr char kDriver[] = "driver";
constexpr char kWorker[] = "worker";

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Number>
absl::Status ReadNumber(const char* name, int64_t least, Number* number) {
  const std::string text = Variable(name);
  Number value = 0;
  if (!absl::SimpleAtoi(text, &value) || static_cast<__int128>(value) < least) {
    return absl::InvalidArgumentError(absl::StrCat("environment: ", name, " is \"", text, "\", not a number from ", least,
                                                   ": TROUPE_ variables are set by the launcher alone"));
  }
  *number = value;
  return absl::OkStatus();
}

absl::Status ReadText(const char* name, std::string* text) {
  *text = Variable(name);
  if (!text->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("environment: ", name, " is missing beside ", kRole, "=", Variable(kRole)));
}

}  // namespace

absl::StatusOr<std::optional<ProcessIdentity>> IdentityFromEnvironment() {
  const std::string role = Variable(kRole);
  if (role.empty()) return std::optional<ProcessIdentity>();
  ProcessIdentity identity;
  if (role == kDriver) {
    identity.role = ProcessIdentity::Role::kDriver;
  } else if (role == kWorker) {
    identity.role = ProcessIdentity::Role::kWorker;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("environment: ", kRole, " is \"", role, "\", not ", kDriver, " or ", kWorker));
  }
  TROUPE_RETURN_IF_ERROR(ReadNumber(kNode, 0, &identity.node));
  TROUPE_RETURN_IF_ERROR(ReadNumber(kIncarnation, 1, &identity.incarnation));
  TROUPE_RETURN_IF_ERROR(ReadNumber(kJobEpoch, 1, &identity.job_epoch));
  TROUPE_RETURN_IF_ERROR(ReadNumber(kRank, -1, &identity.rank));
  TROUPE_RETURN_IF_ERROR(ReadNumber(kNumWorkers, 1, &identity.num_workers));
  TROUPE_RETURN_IF_ERROR(ReadText(kCoordinator, &identity.coordinator));
  TROUPE_RETURN_IF_ERROR(ReadText(kEndpoint, &identity.endpoint));
  TROUPE_RETURN_IF_ERROR(ReadText(kHost, &identity.host));
  TROUPE_RETURN_IF_ERROR(ReadText(kJobDir, &identity.job_dir));
  identity.mesh = Variable(kMesh);
  return std::make_optional(identity);
}

std::vector<std::string> EnvironmentOf(const ProcessIdentity& identity) {
  const char* role = identity.role == ProcessIdentity::Role::kDriver ? kDriver : kWorker;
  return {
      absl::StrCat(kRole, "=", role),
      absl::StrCat(kNode, "=", identity.node),
      absl::StrCat(kIncarnation, "=", identity.incarnation),
      absl::StrCat(kJobEpoch, "=", identity.job_epoch),
      absl::StrCat(kRank, "=", identity.rank),
      absl::StrCat(kNumWorkers, "=", identity.num_workers),
      absl::StrCat(kMesh, "=", identity.mesh),
      absl::StrCat(kCoordinator, "=", identity.coordinator),
      absl::StrCat(kEndpoint, "=", identity.endpoint),
      absl::StrCat(kHost, "=", identity.host),
      absl::StrCat(kJobDir, "=", identity.job_dir),
  };
}

bool IsIdentityVariable(absl::string_view variable) {
  for (const char* name : kAll) {
    if (absl::StartsWith(variable, absl::StrCat(name, "="))) return true;
  }
  return false;
}

}  // namespace troupe::runtime
