// Line: messages to and from one peer, in order, over a socket that never blocks.
//
// A message is eight bytes for kind and length, and its body: numbers of eight bytes, texts as length and bytes,
// little-endian. Nothing that a peer sends is trusted: messages beyond the length limit, or of unknown kinds, close the
// line.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "librun/meet/socket.h"

namespace sg::meet {

enum class MessageKind : uint8_t {
  hello,    // who is calling
  seen,     // the caller is expected; other ranks are still missing
  refusal,  // why the caller is not expected
  welcome,  // all ranks are there
  text,     // one rank's text of an exchange
  texts,    // all ranks'
  heart,    // what one rank is doing
  hearts,   // what all ranks are doing
  failure,  // of the job
  end,      // the process ends, with an exit code
  bye,      // no further messages
};
constexpr MessageKind kLastMessageKind = MessageKind::bye;

struct Message {
  MessageKind kind = MessageKind::bye;
  std::string body;
};

class BodyWriter {
 public:
  BodyWriter& number(uint64_t n);
  BodyWriter& text(std::string_view s);
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Missing values read as 0 or "", after which `ok` is false.
class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : left_(body) {}
  uint64_t number();
  std::string text();
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && left_.empty(); }

 private:
  std::string_view left_;
  bool ok_ = true;
};

class Line {
 public:
  // `longest`: limit for received bodies
  explicit Line(Socket socket, size_t longest) : socket_(std::move(socket)), longest_(longest) {}

  const Socket& socket() const { return socket_; }
  bool is_open() const { return socket_.is_open(); }
  void allow(size_t longest) { longest_ = longest; }

  using Body = std::shared_ptr<const std::string>;  // lines to many peers share one

  // Queues a message; `advance` sends it.
  void post(MessageKind kind, Body body);
  void post(MessageKind kind, std::string body = {}) {
    post(kind, std::make_shared<const std::string>(std::move(body)));
  }
  bool has_unsent() const { return !unsent_.empty(); }
  // Sends and receives without waiting; received messages are appended. False, and closed: the peer is gone. It may
  // leave data unread: the socket then stays readable.
  bool advance(std::vector<Message>* came);

 private:
  bool send_some();
  bool receive_some(std::vector<Message>* came);
  bool cut_messages(std::vector<Message>* came);

  Socket socket_;
  size_t longest_;
  std::deque<Body> unsent_;  // headers and bodies
  size_t sent_ = 0;          // bytes sent of the first one
  std::string received_;
};

}  // namespace sg::meet
