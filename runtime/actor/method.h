/// What the compiler knows of a method: its parameters, its result, and how it is called from bytes and packed into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/actor/object_ref.h"
#include "runtime/msg/codec.h"

namespace troupe::runtime {

/// What a caller gets of a method that returns R: T for T and StatusOr<T>, void for void and Status.
template <typename R>
struct ResultTraits {
  using Type = std::decay_t<R>;
};
template <>
struct ResultTraits<absl::Status> {
  using Type = void;
};
template <>
struct ResultTraits<void> {
  using Type = void;
};
template <typename T>
struct ResultTraits<absl::StatusOr<T>> {
  using Type = T;
};

template <typename M>
struct MethodTraits;

template <typename R, typename C, typename... P>
struct MethodTraits<R (C::*)(P...)> {
  using Returns = R;
  using Result = typename ResultTraits<R>::Type;
  using Class = C;
  using Arguments = std::tuple<std::decay_t<P>...>;
  static constexpr size_t kArity = sizeof...(P);
  static_assert(((!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>)&&...),
                "an actor's method cannot change its caller's arguments: take a value or a const reference");
};
template <typename R, typename C, typename... P>
struct MethodTraits<R (C::*)(P...) const> : MethodTraits<R (C::*)(P...)> {};
template <typename R, typename C, typename... P>
struct MethodTraits<R (C::*)(P...) noexcept> : MethodTraits<R (C::*)(P...)> {};
template <typename R, typename C, typename... P>
struct MethodTraits<R (C::*)(P...) const noexcept> : MethodTraits<R (C::*)(P...)> {};

template <auto M>
using MethodResult = typename MethodTraits<decltype(M)>::Result;

/// The type under which an argument travels when no parameter says so: text in any form is a std::string.
template <typename T>
using PackedType = std::conditional_t<std::is_convertible_v<std::decay_t<T>, absl::string_view> &&
                                          !std::is_same_v<std::decay_t<T>, std::string>,
                                      std::string, std::decay_t<T>>;

namespace method_internal {

template <typename P, typename A>
void PackArgument(codec_internal::Packer& packer, const A& argument) {
  if constexpr (std::is_same_v<A, P>) {
    packer.pack(argument);
  } else if constexpr (IsObjectRef<A>::value) {
    static_assert(IsObjectRef<P>::value || std::is_same_v<typename A::Value, P>,
                  "the ObjectRef holds another type than the parameter");
    packer.pack(argument);
  } else {
    packer.pack(static_cast<P>(argument));
  }
}

template <typename P>
absl::Status UnpackArgument(const msgpack::object& object, const DecodeContext& context, P* argument) {
  if constexpr (!IsObjectRef<P>::value) {
    if (codec_internal::IsExt(object, codec_internal::kRefExt)) {
      const uint32_t index = codec_internal::ExtIndex(object);
      if (index >= context.refs.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("reference ", index, " is named, ", context.refs.size(), " came"));
      }
      const auto payload = context.refs[index]->Value(absl::InfinitePast());
      if (!payload.ok()) return payload.status();
      absl::StatusOr<P> value = DecodeValue<P>(**payload, context.node, "the value of a reference");
      if (!value.ok()) return value.status();
      *argument = *std::move(value);
      return absl::OkStatus();
    }
  }
  object.convert(*argument);
  return absl::OkStatus();
}

}  // namespace method_internal

/// Packs arguments as the parameters `P...` of whoever takes them; frames and references go to `context`.
template <typename... P, typename... A>
std::string EncodeArguments(std::type_identity<std::tuple<P...>>, EncodeContext* context, const A&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "wrong number of arguments");
  const codec_internal::ContextScope<EncodeContext> scope(&codec_internal::encode_context, context);
  std::string body;
  codec_internal::StringStream stream{&body};
  codec_internal::Packer packer(stream);
  packer.pack_array(sizeof...(A));
  (method_internal::PackArgument<P>(packer, arguments), ...);
  return body;
}

/// Errors  INVALID_ARGUMENT naming the argument that is broken; the error of a reference that has no value.
template <typename Tuple>
absl::StatusOr<Tuple> DecodeArguments(const std::string& body, const DecodeContext& context) {
  Tuple arguments{};
  absl::Status status;
  const auto use = [&](const msgpack::object& object) {
    constexpr size_t kCount = std::tuple_size_v<Tuple>;
    if (object.type != msgpack::type::ARRAY || object.via.array.size != kCount) {
      throw codec_internal::BrokenValue(absl::StrCat("not ", kCount, " arguments"));
    }
    const auto one = [&](size_t index, auto& argument) {
      if (!status.ok()) return;
      try {
        status = method_internal::UnpackArgument(object.via.array.ptr[index], context, &argument);
      } catch (const std::exception& error) {
        throw codec_internal::BrokenValue(absl::StrCat("argument ", index, ": ", error.what()));
      }
    };
    [&]<size_t... I>(std::index_sequence<I...>) { (one(I, std::get<I>(arguments)), ...); }
    (std::make_index_sequence<kCount>());
  };
  const absl::Status parsed = codec_internal::WithObject(body, context, "arguments", use);
  if (!parsed.ok()) return parsed;
  if (!status.ok()) return status;
  return arguments;
}

/// Calls M on an object of class A with packed arguments and packs what it returns.
template <class A, auto M>
absl::StatusOr<Payload> InvokeMethod(void* object, const std::string& body, const DecodeContext& context) {
  using Traits = MethodTraits<decltype(M)>;
  using Returns = typename Traits::Returns;
  absl::StatusOr<typename Traits::Arguments> arguments = DecodeArguments<typename Traits::Arguments>(body, context);
  if (!arguments.ok()) return arguments.status();
  const auto call = [&]() -> Returns {
    return std::apply(
        [&](auto&... argument) -> Returns { return (static_cast<A*>(object)->*M)(std::move(argument)...); },
        *arguments);
  };
  if constexpr (std::is_void_v<Returns>) {
    call();
    return EncodeValue(std::monostate());
  } else if constexpr (std::is_same_v<std::decay_t<Returns>, absl::Status>) {
    absl::Status status = call();
    if (!status.ok()) return status;
    return EncodeValue(std::monostate());
  } else if constexpr (!std::is_same_v<typename Traits::Result, std::decay_t<Returns>>) {
    auto result = call();
    if (!result.ok()) return result.status();
    return EncodeValue(*result);
  } else {
    return EncodeValue(call());
  }
}

}  // namespace troupe::runtime
