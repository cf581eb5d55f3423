#include "runtime/msg/error_chain.h"

#include <map>
#include <msgpack.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace troupe::runtime {
namespace {

constexpr char kChainUrl[] = "troupe/error_chain";
constexpr char kOutcomeUrl[] = "troupe/outcome_unknown";

struct OriginRecord {
  std::string actor;
  int rank = -1;
  std::string host;
  std::string method;
  std::string message;
  MSGPACK_DEFINE(actor, rank, host, method, message)
};

struct StatusRecord {
  int code = 0;
  std::string message;
  std::map<std::string, std::string> payloads;
  MSGPACK_DEFINE(code, message, payloads)
};

template <typename T>
std::string Pack(const T& value) {
  msgpack::sbuffer out;
  msgpack::pack(out, value);
  return std::string(out.data(), out.size());
}

template <typename T>
absl::StatusOr<T> Unpack(absl::string_view bytes, const char* what) {
  try {
    const msgpack::unpack_limit limit(1 << 16, 1 << 16, 1 << 26, 1 << 26, 0, 8);
    const msgpack::object_handle handle = msgpack::unpack(bytes.data(), bytes.size(), nullptr, nullptr, limit);
    return handle.get().as<T>();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, " cannot be read: ", error.what()));
  }
}

}  // namespace

std::string DescribeOrigin(absl::string_view actor, int rank, absl::string_view host) {
  std::string text(actor);
  if (rank >= 0 && !host.empty()) {
    absl::StrAppend(&text, " (rank ", rank, ", host ", host, ")");
  } else if (rank >= 0) {
    absl::StrAppend(&text, " (rank ", rank, ")");
  } else if (!host.empty()) {
    absl::StrAppend(&text, " (host ", host, ")");
  }
  return text;
}

absl::Status AddOrigin(const absl::Status& status, ErrorOrigin origin) {
  if (status.ok()) return status;
  origin.message = std::string(status.message());
  absl::Status outer =
      Annotate(status, absl::StrCat(DescribeOrigin(origin.actor, origin.rank, origin.host), ": ", origin.method));
  std::vector<OriginRecord> records;
  for (ErrorOrigin& inner : ErrorChain(status)) {
    records.push_back(
        {std::move(inner.actor), inner.rank, std::move(inner.host), std::move(inner.method), std::move(inner.message)});
  }
  records.push_back({std::move(origin.actor), origin.rank, std::move(origin.host), std::move(origin.method),
                     std::move(origin.message)});
  outer.SetPayload(kChainUrl, absl::Cord(Pack(records)));
  return outer;
}

std::vector<ErrorOrigin> ErrorChain(const absl::Status& status) {
  std::vector<ErrorOrigin> chain;
  const absl::optional<absl::Cord> payload = status.GetPayload(kChainUrl);
  if (!payload.has_value()) return chain;
  auto records = Unpack<std::vector<OriginRecord>>(std::string(*payload), "error chain");
  if (!records.ok()) return chain;
  for (OriginRecord& record : *records) {
    chain.push_back({std::move(record.actor), record.rank, std::move(record.host), std::move(record.method),
                     std::move(record.message)});
  }
  return chain;
}

std::string EncodeStatus(const absl::Status& status) {
  StatusRecord record;
  record.code = static_cast<int>(status.code());
  record.message = std::string(status.message());
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    record.payloads[std::string(url)] = std::string(payload);
  });
  return Pack(record);
}

absl::Status DecodeStatus(absl::string_view bytes, absl::Status* status) {
  TROUPE_ASSIGN_OR_RETURN(StatusRecord record, Unpack<StatusRecord>(bytes, "status"));
  if (record.code < 0 || record.code > 16) {
    return absl::InvalidArgumentError(absl::StrCat("status: code ", record.code, " is not known"));
  }
  *status = absl::Status(static_cast<absl::StatusCode>(record.code), record.message);
  for (const auto& [url, payload] : record.payloads) status->SetPayload(url, absl::Cord(payload));
  return absl::OkStatus();
}

absl::Status OutcomeUnknown(absl::string_view what, const absl::Status& why) {
  absl::Status status = absl::UnavailableError(absl::StrCat(what, ": outcome unknown: ", why.message()));
  status.SetPayload(kOutcomeUrl, absl::Cord("1"));
  return status;
}

bool IsOutcomeUnknown(const absl::Status& status) { return status.GetPayload(kOutcomeUrl).has_value(); }

}  // namespace troupe::runtime
