/* Offsets in a UserMessage packet ([MS-MQMQ] 2.2.19): BaseHeader, UserHeader up to the queue names, and within the
   MessagePropertiesHeader. */

enum { BASE_FLAGS = 2, SIGNATURE_OF = 4, PACKET_SIZE = 8, TO_QUEUE = 12, USER = 16, SENT = USER + 36, MESSAGE_ID = USER + 40,
       USER_FLAGS = USER + 44, NAMES = USER + 48 };
enum { ACKNOWLEDGE = 0, LABEL_UNITS = 1, CLASS = 2, CORRELATION = 4, BODY_TYPE = 24, TAG = 28, BODY_SIZE = 32,
       ALLOCATED = 36, PRIVACY = 40, HASH = 44, CIPHER = 48, EXTENSION_SIZE = 52, PROPERTIES_END = 56 };
enum { PRIORITY = 7 }; /* bits of BaseHeader.Flags */
