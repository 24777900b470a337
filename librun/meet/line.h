// Line: messages to and from one peer, in order, over a socket that never blocks.
//
// A message is eight bytes, its kind and its length, and its body: numbers of eight bytes, texts by length and bytes,
// little-endian. Nothing that a peer sends is trusted: longer messages than the limit, or kinds that there are not,
// end the line.
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
  hello,    // who calls
  seen,     // the caller is expected; the others are not there yet
  refusal,  // why it is not
  welcome,  // all are there
  text,     // one rank's, of an exchange
  texts,    // all ranks'
  heart,    // what one rank is doing
  hearts,   // what all are doing
  failure,  // of the job
  end,      // the process ends, with an exit code
  bye,      // nothing more comes
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

// What is not there reads as 0 or "", and `ok` says so.
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
  // `longest`: of a body that is taken
  explicit Line(Socket socket, size_t longest) : socket_(std::move(socket)), longest_(longest) {}

  const Socket& socket() const { return socket_; }
  bool is_open() const { return socket_.is_open(); }
  void allow(size_t longest) { longest_ = longest; }

  using Body = std::shared_ptr<const std::string>;  // lines to many peers share one

  // Is sent by `advance`, as far as it goes.
  void post(MessageKind kind, Body body);
  void post(MessageKind kind, std::string body = {}) {
    post(kind, std::make_shared<const std::string>(std::move(body)));
  }
  bool has_unsent() const { return !unsent_.empty(); }
  // Sends and receives without waiting; what has come is appended. False, and closed: the peer is gone. Not all that
  // has come may be read at once: the socket stays readable.
  bool advance(std::vector<Message>* came);

 private:
  bool send_some();
  bool receive_some(std::vector<Message>* came);
  bool cut_messages(std::vector<Message>* came);

  Socket socket_;
  size_t longest_;
  std::deque<Body> unsent_;  // heads and bodies
  size_t sent_ = 0;          // of the first of them
  std::string received_;
};

}  // namespace sg::meet
