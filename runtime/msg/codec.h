/// Packs arguments and results with msgpack; Buffers become frames of their own and are never serialised.
///
/// A struct travels when it says MSGPACK_DEFINE(member, ...). Beyond what msgpack knows: Buffer, absl::Status, absl::StatusOr,
/// absl::Duration, std::monostate (for void), and ObjectRef and ActorHandle (runtime/actor).
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <msgpack.hpp>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/msg/buffer.h"
#include "runtime/msg/error_chain.h"
#include "runtime/msg/message.h"

namespace troupe::runtime {

class Node;
class ObjectState;

/// What values that are more than bytes need while they are packed.
struct EncodeContext {
  std::vector<Buffer> frames;
  std::vector<std::shared_ptr<ObjectState>> refs;  ///< ObjectRefs among the arguments, in the order they were met
};

/// What they need while they are unpacked.
struct DecodeContext {
  absl::Span<const Buffer> frames;
  absl::Span<const std::shared_ptr<ObjectState>> refs;
  Node* node = nullptr;
};

namespace codec_internal {

/// msgpack's adaptors see nothing but the stream, so the context of the call that packs on this thread lies here.
inline thread_local EncodeContext* encode_context = nullptr;
inline thread_local const DecodeContext* decode_context = nullptr;

template <typename Context>
class ContextScope {
 public:
  ContextScope(Context** slot, Context* context) : slot_(slot), before_(*slot) { *slot = context; }
  ~ContextScope() { *slot_ = before_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context** slot_;
  Context* before_;
};

/// What msgpack writes into.
struct StringStream {
  std::string* out;
  void write(const char* data, size_t size) { out->append(data, size); }
};
using Packer = msgpack::packer<StringStream>;

constexpr int8_t kFrameExt = 1;
constexpr int8_t kRefExt = 2;

template <typename Stream>
void PackIndex(msgpack::packer<Stream>& out, int8_t type, size_t index) {
  const auto narrow = static_cast<uint32_t>(index);
  char bytes[sizeof(narrow)];
  std::memcpy(bytes, &narrow, sizeof(narrow));
  out.pack_ext(sizeof(bytes), type);
  out.pack_ext_body(bytes, sizeof(bytes));
}

inline bool IsExt(const msgpack::object& object, int8_t type) {
  return object.type == msgpack::type::EXT && object.via.ext.size == sizeof(uint32_t) && object.via.ext.type() == type;
}

inline uint32_t ExtIndex(const msgpack::object& object) {
  uint32_t index = 0;
  std::memcpy(&index, object.via.ext.data(), sizeof(index));
  return index;
}

/// Throws what msgpack throws, so that one handler around the whole value turns it into a status.
struct BrokenValue : msgpack::type_error {
  explicit BrokenValue(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

/// Limits that follow from the size of the body: an element takes a byte at least, nesting is bounded.
inline msgpack::unpack_limit LimitsFor(size_t body) {
  constexpr size_t kDepth = 64;
  return msgpack::unpack_limit(body, body, body, body, body, kDepth);
}

inline bool Refer(msgpack::type::object_type, std::size_t, void*) { return true; }

/// Parses `body` and gives the object tree to `use`, turning exceptions into INVALID_ARGUMENT.
template <typename Use>
absl::Status WithObject(const std::string& body, const DecodeContext& context, absl::string_view what, Use use) {
  const ContextScope<const DecodeContext> scope(&decode_context, &context);
  try {
    std::size_t offset = 0;
    const msgpack::object_handle handle =
        msgpack::unpack(body.data(), body.size(), offset, &Refer, nullptr, LimitsFor(body.size()));
    if (offset != body.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": ", body.size() - offset, " of ", body.size(), " bytes are left over"));
    }
    use(handle.get());
    return absl::OkStatus();
  } catch (const BrokenValue& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", error.what()));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not what was expected: ", error.what()));
  }
}

}  // namespace codec_internal

/// Packs one value.
template <typename T>
Payload EncodeValue(const T& value, EncodeContext* context = nullptr) {
  EncodeContext own;
  if (context == nullptr) context = &own;
  const codec_internal::ContextScope<EncodeContext> scope(&codec_internal::encode_context, context);
  Payload payload;
  codec_internal::StringStream stream{&payload.body};
  codec_internal::Packer packer(stream);
  packer.pack(value);
  payload.frames = std::move(context->frames);
  return payload;
}

/// Errors  INVALID_ARGUMENT when the payload is broken or holds something else than a T.
template <typename T>
absl::StatusOr<T> DecodeValue(const std::string& body, const DecodeContext& context, absl::string_view what = "value") {
  T value{};
  const absl::Status status =
      codec_internal::WithObject(body, context, what, [&](const msgpack::object& object) { object.convert(value); });
  if (!status.ok()) return status;
  return value;
}

template <typename T>
absl::StatusOr<T> DecodeValue(const Payload& payload, Node* node = nullptr, absl::string_view what = "value") {
  return DecodeValue<T>(payload.body, DecodeContext{payload.frames, {}, node}, what);
}

}  // namespace troupe::runtime

namespace msgpack {
MSGPACK_API_VERSION_NAMESPACE(MSGPACK_DEFAULT_API_NS) {
  namespace adaptor {

  template <>
  struct pack<troupe::runtime::Buffer> {
    template <typename Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& out, const troupe::runtime::Buffer& buffer) const {
      auto& frames = troupe::runtime::codec_internal::encode_context->frames;
      troupe::runtime::codec_internal::PackIndex(out, troupe::runtime::codec_internal::kFrameExt, frames.size());
      frames.push_back(buffer);
      return out;
    }
  };

  template <>
  struct convert<troupe::runtime::Buffer> {
    const msgpack::object& operator()(const msgpack::object& object, troupe::runtime::Buffer& buffer) const {
      namespace internal = troupe::runtime::codec_internal;
      if (!internal::IsExt(object, internal::kFrameExt)) throw msgpack::type_error();
      const auto frames = internal::decode_context->frames;
      const uint32_t index = internal::ExtIndex(object);
      if (index >= frames.size()) {
        throw internal::BrokenValue(absl::StrCat("frame ", index, " is named, ", frames.size(), " came"));
      }
      buffer = frames[index];
      return object;
    }
  };

  template <>
  struct pack<std::monostate> {
    template <typename Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& out, const std::monostate&) const {
      return out.pack_nil();
    }
  };

  template <>
  struct convert<std::monostate> {
    const msgpack::object& operator()(const msgpack::object& object, std::monostate&) const {
      if (object.type != msgpack::type::NIL) throw msgpack::type_error();
      return object;
    }
  };

  template <>
  struct pack<absl::Status> {
    template <typename Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& out, const absl::Status& status) const {
      return out.pack(troupe::runtime::EncodeStatus(status));
    }
  };

  template <>
  struct convert<absl::Status> {
    const msgpack::object& operator()(const msgpack::object& object, absl::Status& status) const {
      const absl::Status parsed = troupe::runtime::DecodeStatus(object.as<std::string>(), &status);
      if (!parsed.ok()) throw troupe::runtime::codec_internal::BrokenValue(std::string(parsed.message()));
      return object;
    }
  };

  template <typename T>
  struct pack<absl::StatusOr<T>> {
    template <typename Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& out, const absl::StatusOr<T>& value) const {
      out.pack_array(2);
      out.pack(value.status());
      if (value.ok()) return out.pack(*value);
      return out.pack_nil();
    }
  };

  template <typename T>
  struct convert<absl::StatusOr<T>> {
    const msgpack::object& operator()(const msgpack::object& object, absl::StatusOr<T>& value) const {
      if (object.type != msgpack::type::ARRAY || object.via.array.size != 2) throw msgpack::type_error();
      absl::Status status = object.via.array.ptr[0].as<absl::Status>();
      if (status.ok()) {
        value = object.via.array.ptr[1].as<T>();
      } else {
        value = std::move(status);
      }
      return object;
    }
  };

  template <>
  struct pack<absl::Duration> {
    template <typename Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& out, const absl::Duration& duration) const {
      return out.pack(absl::ToInt64Nanoseconds(duration));
    }
  };

  template <>
  struct convert<absl::Duration> {
    const msgpack::object& operator()(const msgpack::object& object, absl::Duration& duration) const {
      duration = absl::Nanoseconds(object.as<int64_t>());
      return object;
    }
  };

  }  // namespace adaptor
}
}  // namespace msgpack
