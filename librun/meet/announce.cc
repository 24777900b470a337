#include "librun/meet/announce.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "libgraph/base/output_file.h"
#include "librun/meet/torch_store.h"

namespace sg::meet {
namespace {

constexpr std::string_view kTitle = "stepgraph-rank0";
constexpr size_t kLongest = 64 << 10;  // limit for our announcement files

// The file's text, up to the maximum length of an announcement. Empty: there is no file, or it is empty.
std::string read_text(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  std::string text(kLongest, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

}  // namespace

std::string Announcement::text() const {
  std::string out = std::string(kTitle) + " " + token + " " + std::to_string(port);
  for (const std::string& address : addresses) out += " " + address;
  return out + "\n";
}

std::optional<Announcement> Announcement::parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  Announcement out;
  std::string title, port;
  if (text.empty() || text.back() != '\n' || !(words >> title >> out.token >> port) || title != kTitle)
    return std::nullopt;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || *end != '\0' || out.port == 0) return std::nullopt;
  for (std::string address; words >> address;) out.addresses.push_back(address);
  return out;
}

Status announce(const MeetingPlace& place, const Announcement& announcement) {
  if (place.kind == MeetingPlace::Kind::store) {
    std::string why;
    SG_ASSIGN(std::optional<TorchStore> store, TorchStore::open(place.host, place.port, &why));
    if (!store) return Error{ErrorKind::missing, "nothing answers as " + place.text() + ": " + why};
    return store->set(place.name, announcement.text());
  }
  if (const std::string there = read_text(place.name); !there.empty() && !there.starts_with(kTitle))
    return Error{ErrorKind::usage,
                 "--rendezvous " + place.name + ": the file is there, and was not written by sg-run",
                 {},
                 "a name that is free"};
  SG_ASSIGN(OutputFile file, OutputFile::open(place.name));
  SG_TRY(file.write(announcement.text()));
  SG_TRY(file.close());
  return file.commit();
}

Result<std::optional<Announcement>> read_announcement(const MeetingPlace& place, std::string* why) {
  *why = "rank 0 has not left its address there";
  if (place.kind == MeetingPlace::Kind::file) return Announcement::parse(read_text(place.name));
  SG_ASSIGN(std::optional<TorchStore> store, TorchStore::open(place.host, place.port, why));
  if (!store) return std::optional<Announcement>();
  SG_ASSIGN(std::optional<std::string> text, store->get(place.name));
  return text ? Announcement::parse(*text) : std::nullopt;
}

void withdraw(const MeetingPlace& place, const Announcement& announcement) {
  if (place.kind == MeetingPlace::Kind::file && read_text(place.name) == announcement.text())
    unlink(place.name.c_str());
}

}  // namespace sg::meet
