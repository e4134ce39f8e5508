#!/bin/bash
cat > /app/backup.sh <<'END'
#!/bin/bash
[ -d "$1" ] || exit 2
mkdir -p "$2" && cp -a "$1/." "$2/"
END
chmod +x /app/backup.sh
