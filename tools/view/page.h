// The page of sg-view: tools/view/page/*, put into the program by cmake/embed_page.cmake, with {{title}} and {{data}}
// left open.
#pragma once

#include <string_view>

namespace sg {

std::string_view view_page();

}  // namespace sg
