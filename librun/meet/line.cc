#include "librun/meet/line.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace sg::meet {
namespace {

constexpr size_t kHead = sizeof(uint64_t);
constexpr int kKindShift = 56;
constexpr size_t kChunk = 64 << 10;
constexpr int kMostChunks = 64;  // limit per peer before the next one's turn

void append(std::string* out, uint64_t n) {
  for (size_t i = 0; i < sizeof n; ++i) out->push_back(static_cast<char>(n >> (8 * i)));
}

uint64_t number_at(std::string_view bytes) {
  uint64_t n = 0;
  for (size_t i = 0; i < sizeof n; ++i) n |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return n;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

BodyWriter& BodyWriter::number(uint64_t n) {
  append(&out_, n);
  return *this;
}

BodyWriter& BodyWriter::text(std::string_view s) {
  append(&out_, s.size());
  out_ += s;
  return *this;
}

uint64_t BodyReader::number() {
  ok_ = ok_ && left_.size() >= kHead;
  if (!ok_) return 0;
  const uint64_t n = number_at(left_);
  left_.remove_prefix(kHead);
  return n;
}

std::string BodyReader::text() {
  const uint64_t size = number();
  ok_ = ok_ && size <= left_.size();
  if (!ok_) return "";
  std::string out(left_.substr(0, size));
  left_.remove_prefix(size);
  return out;
}

void Line::post(MessageKind kind, Body body) {
  std::string head;
  append(&head, uint64_t{static_cast<uint8_t>(kind)} << kKindShift | body->size());
  unsent_.push_back(std::make_shared<const std::string>(std::move(head)));
  if (!body->empty()) unsent_.push_back(std::move(body));
}

bool Line::advance(std::vector<Message>* came) {
  // What arrived before the peer left counts, so receiving is tried even if sending fails.
  if (!is_open()) return false;
  const bool sends = send_some(), receives = receive_some(came);
  if (!sends || !receives) socket_ = Socket();
  return is_open();
}

bool Line::send_some() {
  while (has_unsent()) {
    const std::string& part = *unsent_.front();
    const ssize_t n = send(socket_.fd(), part.data() + sent_, part.size() - sent_, MSG_NOSIGNAL);
    if (n < 0) return would_block();
    sent_ += static_cast<size_t>(n);
    if (sent_ == part.size()) unsent_.pop_front(), sent_ = 0;
  }
  return true;
}

bool Line::receive_some(std::vector<Message>* came) {
  for (int chunk = 0; chunk < kMostChunks; ++chunk) {
    const size_t have = received_.size();
    received_.resize(have + kChunk);
    const ssize_t n = recv(socket_.fd(), received_.data() + have, kChunk, 0);
    received_.resize(have + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n < 0 && would_block()) return true;
    if (!cut_messages(came) || n <= 0) return false;
  }
  return true;
}

bool Line::cut_messages(std::vector<Message>* came) {
  size_t at = 0;
  while (received_.size() - at >= kHead) {
    const uint64_t head = number_at(std::string_view(received_).substr(at));
    const uint64_t kind = head >> kKindShift, size = head & ((uint64_t{1} << kKindShift) - 1);
    if (kind > static_cast<uint64_t>(kLastMessageKind) || size > longest_) return false;
    if (received_.size() - at - kHead < size) break;
    came->push_back({static_cast<MessageKind>(kind), received_.substr(at + kHead, size)});
    at += kHead + size;
  }
  received_.erase(0, at);
  return true;
}

}  // namespace sg::meet
