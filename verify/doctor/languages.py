"""Error words of other languages, turned into the English ones the signatures know.

The system's own texts (glibc's strerror, the loader, gcc, ld, bash) come in the language of the machine. German,
Spanish, French, Japanese, Korean, Portuguese and Russian are covered for the texts that decide a diagnosis.
"""

from __future__ import annotations

import re

WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "No space left on device",
        (
            *("设备上没有空间", "裝置上已無多餘空間", "設備上沒有空間", "デバイスに空き領域がありません"),
            *("장치에 남은 공간이 없음", "Auf dem Gerät ist kein Speicherplatz mehr verfügbar"),
            *("Aucun espace disponible sur le périphérique", "No queda espacio en el dispositivo"),
            *("Não há espaço disponível no dispositivo", "На устройстве не осталось свободного места"),
            *("磁盘空间不足", "磁盘已满", "没有足够的磁盘空间"),
        ),
    ),
    (
        "No such file or directory",
        (
            *(
                "没有那个文件或目录",
                "沒有此一檔案或目錄",
                "没有该文件或目录",
                "そのようなファイルやディレクトリはありません",
            ),
            *("그런 파일이나 디렉터리가 없습니다", "Datei oder Verzeichnis nicht gefunden"),
            *("Aucun fichier ou dossier de ce type", "No existe el archivo o el directorio", "No existe el fichero"),
            *("Arquivo ou diretório inexistente", "Нет такого файла или каталога"),
        ),
    ),
    (
        "Permission denied",
        (
            *("权限不够", "拒绝不符权限的操作", "權限不符", "许可被拒绝", "權限被拒", "权限被拒绝", "許可がありません"),
            *("허가 거부", "Keine Berechtigung", "Permission non accordée", "Permiso denegado", "Permissão negada"),
            *("Отказано в доступе",),
        ),
    ),
    (
        "Operation not permitted",
        (
            "不允许的操作",
            "此項操作並不被允許",
            "許可されていない操作です",
            "Operation nicht gestattet",
            "Opération non permise",
        ),
    ),
    (
        "Cannot allocate memory",
        (
            *(
                "无法分配内存",
                "无法分配存储空间",
                "無法配置記憶體",
                "メモリを確保できません",
                "메모리를 할당할 수 없습니다",
            ),
            *(
                "Nicht genügend Hauptspeicher verfügbar",
                "Impossible d'allouer de la mémoire",
                "Не удалось выделить память",
            ),
        ),
    ),
    (
        "Read-only file system",
        (
            "只读文件系统",
            "唯讀檔案系統",
            "読み込み専用ファイルシステムです",
            "Das Dateisystem ist nur lesbar",
            "Read-only 文件系统",
        ),
    ),
    ("Bus error", ("总线错误", "匯流排錯誤", "バスエラー", "버스 오류", "Bus-Zugriffsfehler", "Erreur du bus")),
    (
        "Segmentation fault",
        ("段错误", "段錯誤", "程式記憶體區段錯誤", "Speicherzugriffsfehler", "Erreur de segmentation"),
    ),
    ("Aborted", ("已放弃", "已中止 (核心", "Abgebrochen (Speicherabzug", "アボートしました")),
    ("Illegal instruction", ("非法指令", "Ungültiger Maschinenbefehl", "Instruction non permise")),
    ("core dumped", ("核心已转储", "核心已傾印", "吐核", "コアダンプ", "Speicherabzug geschrieben")),
    ("Killed", ("已杀死", "已終止", "被杀死", "Getötet", "強制終了", "Processus arrêté", "죽었음")),
    (
        "Connection refused",
        ("拒绝连接", "连接被拒绝", "連線被拒絕", "接続を拒否されました", "Verbindungsaufbau abgelehnt"),
    ),
    ("Connection timed out", ("连接超时", "連線逾時", "接続がタイムアウトしました")),
    ("Too many open files", ("打开的文件过多", "打開的檔案過多", "开启的文件过多", "Zu viele offene Dateien")),
    (
        "Resource temporarily unavailable",
        ("资源暂时不可用", "資源暫時無法取得", "Die Ressource ist zur Zeit nicht verfügbar"),
    ),
    ("Address already in use", ("地址已在使用", "地址已被使用", "位址已被使用", "Die Adresse wird bereits verwendet")),
    (
        "Disk quota exceeded",
        ("超出磁盘限额", "超出磁碟配額", "磁盘配额已满", "Der zugewiesene Plattenplatz ist überschritten"),
    ),
    ("Input/output error", ("输入/输出错误", "輸入/輸出錯誤", "Eingabe-/Ausgabefehler")),
    (
        "cannot open shared object file",
        (
            "无法打开共享对象文件",
            "無法開啟共用目的檔",
            "无法打开共享目标文件",
            "Kann die Shared-Object-Datei nicht öffnen",
        ),
    ),
    ("undefined symbol", ("未定义的符号", "未定义符号", "未定義的符號", "undefiniertes Symbol", "symbole non défini")),
    ("fatal error", ("致命错误", "嚴重錯誤", "schwerwiegender Fehler", "erreur fatale", "error fatal")),
    ("error: ", ("错误：", "錯誤：", "エラー:", "Fehler:", "erreur :")),
    ("cannot find ", ("找不到", "無法找到", "kann nicht finden", "ne peut pas trouver")),
    (
        "command not found",
        ("未找到命令", "找不到命令", "指令找不到", "コマンドが見つかりません", "Befehl nicht gefunden"),
    ),
    ("cannot be preloaded", ("不能被预加载", "无法预加载", "無法預先載入")),
    ("compilation terminated", ("编译中断", "編譯中斷")),
    ("not found (required by", ("未找到 (需要", "找不到 (被", "未找到（被")),
    (
        "CUDA out of memory",
        (
            "CUDA 内存不足",
            "CUDA内存不足",
            "显存不足",
            "显存溢出",
            "爆显存",
            "显存不够",
            "GPU内存不足",
            "GPU 内存不足",
            "CUDA 显存不足",
        ),
    ),
    ("driver on your system is too old", ("驱动版本过低", "驱动版本太低", "驱动过旧", "驱动太旧", "驱动版本过旧")),
    ("Torch not compiled with CUDA enabled", ("CPU版本的PyTorch", "CPU 版本的 PyTorch", "PyTorch是CPU版本")),
    ("no CUDA GPUs are available", ("没有可用的GPU", "没有可用的 GPU", "CUDA不可用", "CUDA 不可用", "无法使用GPU")),
    ("port is already allocated", ("端口已被占用", "端口被占用")),
    ("Cannot connect to the Docker daemon", ("无法连接到 Docker 守护进程", "无法连接到Docker守护进程")),
    ("insufficient shared memory", ("共享内存不足", "共享内存不够")),
    (
        "no NVIDIA GPU found",
        ("未检测到 NVIDIA 显卡", "没有检测到显卡", "未检测到显卡", "未检测到GPU", "未检测到 GPU", "找不到GPU"),
    ),
)
TABLE = {foreign: native for native, others in WORDS for foreign in others}
FOREIGN = re.compile("|".join(re.escape(w) for w in sorted(TABLE, key=len, reverse=True)))
# Full-width punctuation and typographic quotes that localized gcc and loader texts use.
SIGNS = str.maketrans(
    {"：": ": ", "，": ", ", "“": '"', "”": '"', "‘": "'", "’": "'", "（": " (", "）": ")", "。": "."}
)


def english(text: str) -> str:
    """`text` with the error words of other languages replaced by the English ones; runs of spaces inside become one."""
    text = FOREIGN.sub(lambda m: " " * text.endswith(":", 0, m.start()) + TABLE[m[0]], text).translate(SIGNS)
    return re.sub(r"(?<=\S) {2,}", " ", text)
