# Writes OUT: the texts of FILES (separated by ;) as sg::machine_texts(). Run as a script, when one of them changes.
set(rows "")
list(SORT FILES)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND rows "    {\"${name}\", R\"sg(${text})sg\"},\n")
endforeach()
file(WRITE ${OUT} "#include \"libgraph/sim/machine_texts.h\"\n\nnamespace sg {\nnamespace {\nconstexpr MachineText kTexts[] = {\n${rows}};\n}  // namespace\n\n"
  "std::span<const MachineText> machine_texts() { return kTexts; }\n\n}  // namespace sg\n")
