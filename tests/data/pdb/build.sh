#!/bin/sh
# Makes the programs and PDBs of this folder with LLVM (Debian: clang, lld), which is all they hold.
set -e
for cpu in x86_64:x64 i686:x86; do
    triple=${cpu%%:*}-pc-windows-msvc arch=${cpu##*:}
    for file in app second; do
        clang++ --target=$triple -g -gcodeview -O1 -ffreestanding -fno-exceptions -fms-extensions -fdebug-compilation-dir=. -c $file.cpp -o $file.obj
    done
    lld-link /entry:mainCRTStartup /subsystem:console /nodefaultlib /debug /out:app.exe /pdb:app.pdb /pdbaltpath:app.pdb app.obj second.obj
    tar -cJf app-$arch.tar.xz app.exe app.pdb
    rm -f app.exe app.pdb app.obj second.obj
done
